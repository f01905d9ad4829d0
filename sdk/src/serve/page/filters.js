// The choices around the graph: time window, tags, what is hidden, and the legend. Each is a button that is on or off.

import { colour, isDark, KINDS, LEGEND } from './colours.js';
import { button, byId, el, refill, toggle } from './dom.js';
import { percent } from './format.js';
import { shortName } from './names.js';

const WINDOWS = { '-60': '1 min', '-300': '5 min', '-900': '15 min' };
const SHOWN = 6;       // buttons of one tag; more values are in a list

const flipped = (list, one) => (list.includes(one) ? list.filter((other) => other !== one) : [...list, one]);

export function showWindows({ from, to }, choose) {
  refill(byId('windows'), [from, to], () => Object.entries(WINDOWS).map(([value, text]) =>
    toggle(value, from === value && !to, text, () => choose({ from: value, to: '' }))));
  byId('span').classList.toggle('on', Boolean(to) || !WINDOWS[from]);
}

/** The form for a window from–to, in the reader's own time. `shown()` is the window at hand, in milliseconds. */
export function setUpSpan(shown, choose) {
  const [from, to] = [byId('from'), byId('to')];
  const seconds = (input) => (input.value ? String(new Date(input.value) / 1000) : '');
  byId('span').addEventListener('toggle', () => shown().forEach((ms, i) => {
    [from, to][i].value = new Date(ms - new Date(ms).getTimezoneOffset() * 6e4).toISOString().slice(0, 19);
  }));
  from.form.addEventListener('submit', (event) => {
    event.preventDefault();
    choose({ from: seconds(from), to: seconds(to) });
    byId('span').open = false;
  });
}

/** Tags that were seen or are chosen, `key=value`. Values of one key add up, keys narrow. */
export function showTags(seen, chosen, choose) {
  const keys = new Map(Object.entries(seen).map(([key, values]) => [key, new Set(values)]));
  for (const tag of chosen) {
    const [key] = tag.split('=', 1);
    keys.set(key, (keys.get(key) ?? new Set()).add(tag.slice(key.length + 1)));
  }
  const group = ([key, values]) => {
    const on = (value) => chosen.includes(`${key}=${value}`);
    const buttons = [...values].sort((a, b) => (values.size > SHOWN ? on(b) - on(a) : 0)).map((value) =>
      toggle(`${key}=${value}`, on(value), value || '(empty)', () => choose(flipped(chosen, `${key}=${value}`))));
    const rest = buttons.splice(SHOWN);
    return el('div', { role: 'group', 'aria-label': `tag ${key}` }, el('small', { text: key }), ...buttons,
      rest.length && el('details', {}, el('summary', { text: `+${rest.length}` }), el('div', { class: 'panel' }, ...rest)));
  };
  refill(byId('tags'), [[...keys].map(([key, values]) => [key, ...values]), chosen], () =>
    [...[...keys].map(group), chosen.length && button('none', { class: 'plain', text: 'Clear', onclick: () => choose([]) })]);
}

/** Hidden functions, and the kinds of packages with their colours and shares; each can be hidden and shown. */
export function showLegend({ tree, kinds, share }, hidden, choose) {
  const held = {};
  for (let i = 1; i < tree.count; i++) {
    const kind = KINDS[kinds[tree.frame[i]]];
    held[kind] = (held[kind] ?? 0) + tree.self[i];
  }
  const shown = Object.keys(LEGEND).filter((kind) => kind in held);
  refill(byId('legend'), [held, hidden, isDark()], () => [
    ...shown.map((kind) => {
      const swatch = el('i');
      swatch.style.background = colour(KINDS.indexOf(kind), '', isDark());
      const entry = toggle(kind, !hidden.includes(`@${kind}`), '', () => choose(flipped(hidden, `@${kind}`)));
      entry.title = 'Hide or show: what is hidden gives its value to its callers';
      entry.append(swatch, `${LEGEND[kind]} `, el('small', { text: percent(share(held[kind])) }));
      return entry;
    }),
    ...hidden.filter((name) => name[0] !== '@').map((name) => toggle(name, false, shortName(name), () => choose(flipped(hidden, name)))),
  ]);
}
