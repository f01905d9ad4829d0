// The keyboard: one list that is both what the keys do and what the help says.

import { byId, el } from './dom.js';

/** `bindings` are [keys, words for the help, action(key)]. */
export function setUpKeys(bindings) {
  const actions = new Map(bindings.flatMap(([keys, , run]) => keys.map((key) => [key, run])));
  document.addEventListener('keydown', (event) => {
    if (event.defaultPrevented || byId('help').open) return;
    const find = (event.ctrlKey || event.metaKey) && event.key === 'f';
    if (!find && (event.ctrlKey || event.metaKey || event.altKey)) return;
    const typing = event.target.closest('input, textarea, select');
    if (typing && event.key !== 'Escape' && !find) return;
    // On a button, Space and Enter press it.
    if (event.target.closest('button, summary, a') && (event.key === ' ' || event.key === 'Enter')) return;
    const run = actions.get(find ? '/' : event.key);
    if (!run) return;
    event.preventDefault();
    run(event.key);
  });
  byId('keys').replaceChildren(...bindings.flatMap(([keys, text]) => [
    el('dt', {}, ...keys.map((key) => el('kbd', { text: NAMES[key] ?? key }))), el('dd', { text }),
  ]));
}

const NAMES = { ' ': 'Space', ArrowUp: '↑', ArrowDown: '↓', ArrowLeft: '←', ArrowRight: '→', Escape: 'Esc' };
