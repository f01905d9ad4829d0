// The choices above the graph: time window, tags, what is hidden. Each is a button that says whether it is on.

import { byId, el, refill } from './dom.js';
import { LEGEND, KINDS } from './colours.js';
import { percent } from './format.js';
import { shortName } from './names.js';

const WINDOWS = [['-60', '1 min'], ['-300', '5 min'], ['-900', '15 min']];
const SHOWN = 6;       // values of a tag shown as buttons; the rest is in a list

const toggle = (text, key, on, click, title) => el('button', { type: 'button', 'data-key': key, 'aria-pressed': String(on), text, title, onclick: click });

export function showWindows(state, choose) {
  refill(byId('windows'), [state.from, state.to], () => WINDOWS.map(([from, text]) =>
    toggle(text, from, state.from === from && !state.to, () => choose({ from, to: '' }))));
  const fixed = Boolean(state.to) || !WINDOWS.some(([from]) => from === state.from);
  byId('span').classList.toggle('on', fixed);
}

/** The form for a window from–to, in the reader's own time. */
export function setUpSpan(choose, close) {
  byId('span-form').addEventListener('submit', (event) => {
    event.preventDefault();
    const [from, to] = [byId('span-from'), byId('span-to')].map((input) => (input.value ? new Date(input.value).getTime() / 1000 : NaN));
    const wrong = Number.isNaN(from) ? 'Say when it starts.' : to <= from ? 'It must end after it starts.' : '';
    byId('span-from').setCustomValidity(wrong);
    if (wrong) { byId('span-from').reportValidity(); return; }
    choose({ from: String(from), to: Number.isNaN(to) ? '' : String(to) });
    close();
  });
  byId('span-form').addEventListener('input', () => byId('span-from').setCustomValidity(''));
}

/** Puts the window that is shown into the form. */
export function fillSpan(from, to) {
  const local = (ms) => new Date(ms - new Date(ms).getTimezoneOffset() * 60000).toISOString().slice(0, 19);
  byId('span-from').value = local(from);
  byId('span-to').value = local(to);
}

/** Tags that were seen, and those chosen though no longer seen. Values of one key add up, keys narrow. */
export function showTags(seen, chosen, choose) {
  const keys = new Map(Object.entries(seen).map(([key, values]) => [key, [...values]]));
  for (const [key, value] of chosen) {
    if (!keys.has(key)) keys.set(key, []);
    if (!keys.get(key).includes(value)) keys.get(key).unshift(value);
  }
  const isOn = (key, value) => chosen.some(([k, v]) => k === key && v === value);
  const flip = (key, value) => choose(isOn(key, value) ? chosen.filter(([k, v]) => k !== key || v !== value) : [...chosen, [key, value]]);
  const button = (key, value) => toggle(value || '(empty)', `${key}=${value}`, isOn(key, value), () => flip(key, value));
  refill(byId('tags'), [[...keys], chosen], () => [
    ...[...keys].map(([key, values]) => {
      const front = values.filter((value) => isOn(key, value)).concat(values.filter((value) => !isOn(key, value)));
      const shown = values.length > SHOWN ? front.slice(0, SHOWN) : values;
      const rest = values.length > SHOWN ? front.slice(SHOWN) : [];
      return el('div', { class: 'group', role: 'group', 'aria-label': `tag ${key}` }, el('span', { class: 'key', text: key }), ...shown.map((value) => button(key, value)),
        rest.length ? el('details', { class: 'pop' }, el('summary', { 'data-key': `${key} more`, text: `+${rest.length}` }), el('div', { class: 'panel list' }, ...rest.map((value) => button(key, value)))) : null);
    }),
    chosen.length ? el('button', { type: 'button', class: 'plain', 'data-key': 'clear', text: 'clear', onclick: () => choose([]) }) : null,
  ].filter(Boolean));
}

/** What is hidden by name, each with a way back. */
export function showHidden(hidden, show) {
  const names = hidden.filter((name) => name[0] !== '@');
  refill(byId('hidden'), names, () => names.length === 0 ? [] : [
    el('span', { class: 'key', text: 'hidden' }),
    ...names.map((name) => el('button', { type: 'button', class: 'chip', 'data-key': name, title: `Show ${name} again`, onclick: () => show(name) }, `${shortName(name)} ×`)),
  ]);
}

/** The legend: what a colour means and how much of the CPU is there. A kind can be switched off. */
export function showLegend(profile, hidden, flip) {
  const own = new Float64Array(KINDS.length);
  const { tree, kinds, weight } = profile;
  for (let i = 1; i < tree.count; i++) own[kinds[tree.frame[i]]] += tree.self[i];
  const present = new Set(kinds);
  const entries = LEGEND.filter(([kind]) => present.has(kind)).map(([kind, text]) => [KINDS[kind], text, weight ? percent(own[kind] / weight) : '']);
  refill(byId('legend'), [entries, hidden], () => entries.map(([kind, text, share]) => {
    const on = !hidden.includes(`@${kind}`);
    return el('button', { type: 'button', 'data-key': kind, 'aria-pressed': String(on), title: `${on ? 'Hide' : 'Show'} ${text}: hidden frames give their value to their callers`, onclick: () => flip(`@${kind}`) },
      el('i', { class: `swatch k-${kind}` }), `${text} `, el('small', { text: share }));
  }));
}
