// The choices around the graph: time window, tags, and the legend with what is hidden. Each is a button, on or off.

import { KINDS } from './colours.js';
import { byId, el, refill, swatch, toggle } from './dom.js';
import { percent } from './format.js';
import { shortName } from './names.js';

const WINDOWS = { '-60': '1 min', '-300': '5 min', '-900': '15 min' };
const SHOWN = 6;       // buttons of one tag; more values are in a list
const IN_ORDER = [7, 0, 2, 6, 1, 3, 4, 5];

const flipped = (list, one) => (list.includes(one) ? list.filter((other) => other !== one) : [...list, one]);

export function showWindows({ from, to }, choose) {
  refill(byId('windows'), [from, to], () => Object.entries(WINDOWS).map(([value, text]) =>
    toggle(value, from === value && !to, text, () => choose({ from: value, to: '' }))));
  byId('span').classList.toggle('on', Boolean(to) || !WINDOWS[from]);
}

/** The form for a window from–to, in the reader's own time, filled with the one that is `shown()`. */
export function setUpSpan(shown, choose) {
  const ends = ['from', 'to'];
  const local = (ms) => new Date(ms - new Date(ms).getTimezoneOffset() * 6e4).toISOString().slice(0, 19);
  byId('span').addEventListener('toggle', () => ends.forEach((id) => { byId(id).value = local(shown()[id]); }));
  byId('span').querySelector('form').addEventListener('submit', (event) => {
    event.preventDefault();
    choose(Object.fromEntries(ends.map((id) => [id, byId(id).value && String(new Date(byId(id).value) / 1000)])));
    byId('span').open = false;
  });
}

/**
 * Tags that were seen or are chosen, `key=value`, each with its share of the window. Values of one key add up, keys narrow. Of
 * the heap the heaviest come first; CPU time changes with every answer, and buttons must not.
 */
export function showTags({ answer: { tags: seen, tag_weights: weights, weight }, timed }, chosen, choose) {
  const listed = Object.entries(seen).filter(([key]) => key !== 'trace_id');
  const shares = new Map(listed.flatMap(([key, values]) =>
    values.map((value, i) => [`${key}=${value}`, weights && weight ? weights[key][i] / weight : 0])));
  const byShare = (a, b) => shares.get(b) - shares.get(a);
  const keys = listed.map(([key, values]) => [key, values.map((value) => `${key}=${value}`)]);
  const known = keys.flatMap(([, tags]) => tags);
  if (!timed) keys.forEach(([, tags]) => tags.sort(byShare));
  for (const tag of chosen.filter((one) => !known.includes(one) && !one.startsWith('trace_id='))) {
    const [key] = tag.split('=', 1);
    (keys.find(([name]) => name === key) ?? keys[keys.push([key, []]) - 1])[1].push(tag);
  }
  const group = ([key, tags]) => {
    const on = (tag) => chosen.includes(tag);
    if (tags.length > SHOWN) tags.sort((a, b) => on(b) - on(a));
    const buttons = tags.map((tag) => {
      const node = toggle(tag, on(tag), tag.slice(key.length + 1) || '(empty)', () => choose(flipped(chosen, tag)));
      node.append(el('small'));
      return node;
    });
    const rest = buttons.splice(SHOWN);
    const more = rest.length
      && el('details', {}, el('summary', { text: `+${rest.length}` }), el('div', { class: 'panel' }, ...rest));
    return el('div', { role: 'group', 'aria-label': key }, el('small', { text: key }), ...buttons, more);
  };
  const clear = () => chosen.length && toggle('none', false, 'Clear', () => choose([]));
  refill(byId('tags'), [keys, chosen], () => [...keys.map(group), clear()]);
  for (const note of byId('tags').querySelectorAll('button small')) {
    const share = shares.get(note.parentElement.dataset.key);
    note.textContent = share === undefined ? '' : ` ${percent(share)}`;
  }
}

/** The kinds of packages with colours and shares, and hidden functions; each can be hidden and shown. */
export function showLegend({ held, share }, hidden, choose) {
  const entry = (name, text, ...children) => {
    const node = toggle(name, !hidden.includes(name), text, () => choose(flipped(hidden, name)));
    node.title = 'Hide or show: what is hidden gives its value to its callers';
    node.append(...children);
    return node;
  };
  refill(byId('legend'), [held, hidden, document.documentElement.dataset.theme], () => [
    ...IN_ORDER.filter((kind) => kind in held).map((kind) => entry(
      `@${KINDS[kind][0]}`, '', swatch(kind, ''), `${KINDS[kind][1]} `, el('small', { text: percent(share(held[kind])) }))),
    ...hidden.filter((name) => name[0] !== '@').map((name) => entry(name, shortName(name))),
  ]);
}
