// The keyboard: one list is both what the keys do and what the help says.

import { byId, el } from './dom.js';

const SIGNS = { ' ': 'Space', ArrowUp: '↑', ArrowDown: '↓', ArrowLeft: '←', ArrowRight: '→', Escape: 'Esc' };

/** `commands` are [keys, words for the help, action(key)]. */
export function setUpKeys(commands) {
  document.addEventListener('keydown', (event) => {
    const { key, target, ctrlKey, metaKey, altKey } = event;
    const find = (ctrlKey || metaKey) && key === 'f';
    if (event.defaultPrevented || byId('help').open || (!find && (ctrlKey || metaKey || altKey))) return;
    if (target.closest('input') && key !== 'Escape' && !find) return;
    if (target.closest('button, summary, a') && (key === ' ' || key === 'Enter')) return;     // presses it
    const command = commands.find(([keys]) => keys.includes(find ? '/' : key));
    if (!command) return;
    event.preventDefault();
    command[2](key);
  });
  const sign = (key) => el('kbd', { text: SIGNS[key] ?? key });
  byId('keys').append(...commands.flatMap(([keys, text]) => [el('dt', {}, ...keys.map(sign)), el('dd', { text })]));
}
