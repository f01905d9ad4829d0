// Light or dark: the system's choice until the reader makes one, which this browser then remembers.

let chosen = null;
try { chosen = localStorage.getItem('profiler-theme'); } catch { /* storage is off: the choice lasts as long as the page */ }
apply();

export const theme = () => chosen ?? (matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light');

export function flipTheme() {
  chosen = theme() === 'dark' ? 'light' : 'dark';
  try { localStorage.setItem('profiler-theme', chosen); } catch { /* as above */ }
  apply();
}

function apply() {
  if (chosen) document.documentElement.dataset.theme = chosen;
}
