// Elements built from code. Text from a profile is only ever set as text, never parsed as markup.

export const byId = (id) => document.getElementById(id);

/** An element with properties (`class`, `text`, `on…` listeners, any attribute) and children. */
export function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (key === 'text') node.textContent = value;
    else if (key.startsWith('on')) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key === 'class' ? 'class' : key, value === true ? '' : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

/**
 * Fills `node` with what `build` returns, but only when `key` changed: a refresh must not take the focus away nor close
 * what is open. The focus stays on the element with the same `data-key`.
 */
export function refill(node, key, build) {
  const signature = JSON.stringify(key);
  if (node.signature === signature) return;
  node.signature = signature;
  const focused = node.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  node.replaceChildren(...build());
  if (focused !== undefined) node.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
}
