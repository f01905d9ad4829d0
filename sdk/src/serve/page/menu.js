// The menu of a frame, at right click or the menu key, and what closes menus and panels: a click elsewhere.

import { byId, button, el } from './dom.js';

let back = null;

/** `items`: what to do, by the words for it. */
export function openMenu(at, title, items) {
  const menu = byId('menu');
  if (menu.hidden) back = document.activeElement;
  menu.replaceChildren(el('b', { text: title }), ...Object.entries(items).map(([text, run]) =>
    button(text, { role: 'menuitem', tabindex: -1, text, onclick: () => { close(); run(); } })));
  menu.hidden = false;
  menu.style.left = `${Math.min(at.x, innerWidth - menu.offsetWidth - 8)}px`;
  menu.style.top = `${Math.min(at.y, innerHeight - menu.offsetHeight - 8)}px`;
  menu.querySelector('button').focus();
}

/** The focus goes back to where it was. */
function close() {
  if (!byId('menu').hidden) back.focus({ preventScroll: true });
  byId('menu').hidden = true;
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
  document.addEventListener('pointerdown', ({ target }) => {
    if (!menu.contains(target)) close();
    for (const open of document.querySelectorAll('details[open]')) if (!open.contains(target)) open.open = false;
  });
}
