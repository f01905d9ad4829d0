// The menu of a frame, at right click or the menu key. Arrow keys move; Escape closes and gives the focus back.

import { byId, button, el } from './dom.js';

let back = null;

/** `items` are [text, action]. */
export function openMenu(at, title, items) {
  const menu = byId('menu');
  if (menu.hidden) back = document.activeElement;
  menu.replaceChildren(el('b', { text: title }), ...items.map(([text, run]) =>
    button(text, { role: 'menuitem', tabindex: -1, text, onclick: () => { close(); run(); } })));
  menu.hidden = false;
  menu.style.left = `${Math.max(4, Math.min(at.x, innerWidth - menu.offsetWidth - 8))}px`;
  menu.style.top = `${Math.max(4, Math.min(at.y, innerHeight - menu.offsetHeight - 8))}px`;
  menu.querySelector('button').focus();
}

function close() {
  if (byId('menu').hidden) return;
  byId('menu').hidden = true;
  back.focus({ preventScroll: true });
}

export function setUpMenu() {
  const menu = byId('menu');
  menu.addEventListener('keydown', (event) => {
    const items = [...menu.querySelectorAll('button')];
    const step = { ArrowDown: 1, ArrowUp: items.length - 1 }[event.key];
    event.stopPropagation();
    if (step) items[(items.indexOf(document.activeElement) + step) % items.length].focus();
    else if (event.key === 'Escape' || event.key === 'Tab') close();
    else return;
    event.preventDefault();
  });
  document.addEventListener('pointerdown', ({ target }) => { if (!menu.contains(target)) close(); });
}
