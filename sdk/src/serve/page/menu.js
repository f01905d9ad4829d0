// The menu of a frame, at right click or the menu key. Arrow keys move, Escape closes and gives the focus back.

import { byId, el } from './dom.js';

let back = null;

/** `items` are [text, key shown, action]. */
export function openMenu(at, title, items) {
  const menu = byId('menu');
  back = menu.contains(document.activeElement) ? back : document.activeElement;
  menu.replaceChildren(el('div', { class: 'title', text: title }), ...items.map(([text, key, run]) =>
    el('button', { type: 'button', role: 'menuitem', tabindex: '-1', onclick: () => { closeMenu(); run(); } }, el('span', { text }), el('kbd', { text: key }))));
  menu.hidden = false;
  const { offsetWidth: width, offsetHeight: height } = menu;
  menu.style.left = `${Math.max(4, Math.min(at.x, innerWidth - width - 8))}px`;
  menu.style.top = `${Math.max(4, at.y + height + 8 > innerHeight ? at.y - height : at.y)}px`;
  menu.querySelector('button').focus({ preventScroll: true });
}

export function closeMenu() {
  if (byId('menu').hidden) return false;
  byId('menu').hidden = true;
  back?.focus?.({ preventScroll: true });
  return true;
}

export function setUpMenu() {
  const menu = byId('menu');
  menu.addEventListener('keydown', (event) => {
    const items = [...menu.querySelectorAll('button')];
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) items[(items.indexOf(document.activeElement) + step + items.length) % items.length].focus();
    else if (event.key === 'Tab' || event.key === 'Escape') closeMenu();
    else if (event.key !== 'Enter' && event.key !== ' ') return;
    if (event.key !== 'Enter' && event.key !== ' ') event.preventDefault();
    event.stopPropagation();
  });
  document.addEventListener('pointerdown', (event) => { if (!menu.contains(event.target)) closeMenu(); });
  addEventListener('blur', closeMenu);
}

/** Copies text; where the page has no right to the clipboard (plain HTTP from afar), through a selection. */
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = el('textarea', { class: 'offscreen', text });
    document.body.append(area);
    area.select();
    document.execCommand('copy');
    area.remove();
  }
}
