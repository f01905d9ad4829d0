// Elements built from code. Text from a profile is only ever set as text, never parsed as markup.

import { colour } from './colours.js';

export const byId = (id) => document.getElementById(id);

/** An element with attributes (`text` and `on…` apart) and children; what is null or false is left out. */
export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === 'text') node.textContent = value;
    else if (key.startsWith('on')) node.addEventListener(key.slice(2), value);
    else if (value !== null && value !== false) node.setAttribute(key, value);
  }
  node.append(...children.filter(Boolean));
  return node;
}

export const button = (key, attributes, ...children) =>
  el('button', { type: 'button', 'data-key': key, ...attributes }, ...children);

/** A button that is on or off. */
export const toggle = (key, on, text, onclick) => button(key, { 'aria-pressed': String(on), text, onclick });

/** The colour of a package. */
export function swatch(kind, name) {
  const node = el('i');
  node.style.background = colour(kind, name);
  return node;
}

/**
 * Fills `node` anew when `key` changed, and only then: a refresh must not close what is open. The focus stays on the
 * element with the same `data-key`.
 */
export function refill(node, key, build) {
  const signature = JSON.stringify(key);
  if (node.signature === signature) return;
  node.signature = signature;
  const focused = node.contains(document.activeElement) && document.activeElement.dataset.key;
  node.replaceChildren(...build().filter(Boolean));
  if (focused) node.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
}
