// Colour means package: its kind sets the family (own code warm, the rest cool and quiet), its name the hue, the same
// one everywhere. Boxes of a theme are about equally light, so that text on them can always be read.

/** Kinds as the server numbers them; `runtime` is told from other dependencies by its name. */
export const KINDS = ['own', 'std', 'dependency', 'native', 'kernel', 'unresolved', 'runtime'];

/** The legend's order and words. */
export const LEGEND = { own: 'own code', dependency: 'dependencies', runtime: 'async runtime', std: 'std', native: 'native', kernel: 'kernel', unresolved: 'unresolved' };

const RUNTIMES = /^(tokio|mio|futures|async|smol|rayon|crossbeam)([_-]|$)/;

/** Per kind: first hue, range of hues, chroma, lightness in light, in dark. */
const FAMILIES = [
  [62, 18, 0.11, 0.84, 0.47], [258, 0, 0.012, 0.915, 0.36], [150, 150, 0.05, 0.875, 0.42], [105, 12, 0.05, 0.88, 0.41],
  [345, 20, 0.05, 0.87, 0.42], [0, 0, 0, 0.9, 0.37], [246, 14, 0.035, 0.89, 0.39],
];

export const kindOf = (kind, name) => (kind === 2 && RUNTIMES.test(name) ? 6 : kind);

const known = new Map();

/** The fill of a package's boxes, `dark` or not. Without a name: the kind's, for the legend. */
export function colour(kind, name, dark) {
  const key = `${dark}${kind}${name}`;
  if (!known.has(key)) {
    const [hue, range, chroma, light, dim] = FAMILIES[kind];
    known.set(key, `oklch(${dark ? dim : light} ${chroma} ${hue + range * turn(name)})`);
  }
  return known.get(key);
}

/** A number in [0, 1) from a name, by FNV-1a. */
function turn(name) {
  let hash = 0x811c9dc5;
  for (let i = 0; i < name.length; i++) hash = Math.imul(hash ^ name.charCodeAt(i), 0x01000193);
  return name ? ((hash ^ (hash >>> 15)) >>> 0) % 997 / 997 : 0.5;
}

/** What else the canvas is drawn with. */
export const INKS = {
  light: { root: '#dfe3e8', text: '#16191d', faded: '#59616c', lit: '#2a2f36', selected: '#1f62d0', match: '#a3127c', veil: 0.35 },
  dark: { root: '#333a43', text: '#f3f4f6', faded: '#a3acb8', lit: '#dfe4ea', selected: '#79aefc', match: '#ff7fd6', veil: 0.3 },
};

// Light or dark: the system's choice, until the reader makes another, which this browser keeps.

const KEPT = 'profiler-theme';
const system = matchMedia('(prefers-color-scheme: dark)');
let chosen = null;
try { chosen = localStorage.getItem(KEPT); } catch { /* storage is off: a choice lasts as long as the page */ }

export const isDark = () => (chosen ? chosen === 'dark' : system.matches);

/** Calls `changed` now and whenever the theme changes; returns what flips it. */
export function setUpTheme(changed) {
  const apply = () => {
    document.documentElement.dataset.theme = isDark() ? 'dark' : 'light';
    changed();
  };
  system.addEventListener('change', apply);
  apply();
  return () => {
    chosen = isDark() ? 'light' : 'dark';
    try { localStorage.setItem(KEPT, chosen); } catch { /* as above */ }
    apply();
  };
}
