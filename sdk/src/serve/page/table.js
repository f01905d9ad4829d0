// The table of functions: the same figures as the graph, as text. Sorted, searched, and reached with the keyboard.
//
// Only the rows in sight are in the document, between two spacers; `aria-rowcount` and `aria-rowindex` say what is left out.

import { byId, el } from './dom.js';
import { count, error, percent, samples, time } from './format.js';
import { shortName } from './names.js';
import { colour } from './colours.js';

const ROW = 26;
const FEW = 10;      // under this many samples a row is grey

/** Title, sort key, the value sorted by. */
const COLUMNS = [
  ['Function', 'name', (row) => row.name],
  ['Self', 'self', (row) => row.self],
  ['Self %', 'self', null],
  ['Total', 'total', (row) => row.total],
  ['Total %', 'total', null],
  ['Samples', 'samples', (row) => row.total],
];

export class FunctionTable {
  /** `on.point(row)`, `on.select(row)`, `on.zoom(row)`, `on.menu(row, at)`, `on.sort(key)`. */
  constructor(scroller, on) {
    this.scroller = scroller;
    this.grid = scroller.querySelector('table');
    this.body = this.grid.tBodies[0];
    this.on = on;
    this.rows = [];
    this.active = -1;          // id of the function the keyboard is at
    this.head();
    scroller.addEventListener('scroll', () => this.draw());
    new ResizeObserver(() => this.draw()).observe(scroller);
    this.grid.addEventListener('keydown', (event) => this.key(event));
    this.body.addEventListener('pointerover', (event) => on.point(this.rowOf(event)));
    this.body.addEventListener('pointerleave', () => on.point(null));
    this.body.addEventListener('click', (event) => this.pick(this.rowOf(event)));
    this.body.addEventListener('dblclick', (event) => { if (this.rowOf(event)) on.zoom(this.rowOf(event)); });
    this.body.addEventListener('contextmenu', (event) => this.menu(event));
  }

  head() {
    const cells = COLUMNS.map(([title, key, value]) => el('th', { scope: 'col', class: `c-${key}` },
      value ? el('button', { type: 'button', 'data-sort': key, text: title, onclick: () => this.on.sort(key) })
        : el('span', { text: title, title: 'share of all samples, in percent, and its standard error' })));
    this.grid.tHead.replaceChildren(el('tr', { 'aria-rowindex': '1' }, ...cells));
  }

  /** Shows functions. `sort` is a key, with `-` in front for falling values. */
  show(profile, rows, { sort, theme, chosen }) {
    const key = sort.replace('-', '');
    const value = COLUMNS.find(([, name]) => name === key)[2];
    const sign = sort[0] === '-' ? -1 : 1;
    const order = (a, b) => (value(a) < value(b) ? -sign : value(a) > value(b) ? sign : a.name < b.name ? -1 : 1);
    Object.assign(this, { profile, theme, active: chosen, rows: rows.sort(order) });
    for (const button of this.grid.tHead.querySelectorAll('button')) {
      const on = button.dataset.sort === key;
      button.parentElement.setAttribute('aria-sort', on ? (sign < 0 ? 'descending' : 'ascending') : 'none');
    }
    this.grid.setAttribute('aria-rowcount', rows.length + 1);
    this.draw();
  }

  choose(id) {
    this.active = id;
    this.draw();
  }

  light(id) {
    this.lit = id;
    for (const row of this.body.rows) row.classList.toggle('lit', row.function?.id === id);
  }

  draw() {
    if (!this.profile || !this.scroller.clientHeight) return;
    const first = Math.max(0, Math.floor(this.scroller.scrollTop / ROW) - 4);
    const last = Math.min(this.rows.length, first + Math.ceil(this.scroller.clientHeight / ROW) + 8);
    const lines = this.rows.slice(first, last).map((row, i) => this.line(row, first + i));
    this.body.replaceChildren(spacer(first), ...lines, spacer(this.rows.length - last));
    this.grid.setAttribute('aria-activedescendant', this.rows.some(({ id }) => id === this.active) ? `f${this.active}` : '');
  }

  line(row, index) {
    const { weight, perSample, evidence, frames, packages, kinds } = this.profile;
    const [self, total] = [row.self / weight, row.total / weight];
    const swatch = el('i', { class: 'swatch' });
    swatch.style.background = colour(kinds[row.frame], packages[frames.package[row.frame]], this.theme);
    const value = (n) => (perSample ? time(n * perSample) : count(n));
    const line = el('tr', {
      id: `f${row.id}`, 'aria-rowindex': index + 2, 'aria-selected': String(row.id === this.active),
      class: `${row.total < FEW ? 'few' : ''} ${row.id === this.lit ? 'lit' : ''}`,
    },
    el('td', { class: 'c-name', title: row.name }, swatch, el('span', { text: shortName(row.name) })),
    el('td', { text: value(row.self) }), this.share(self, evidence),
    el('td', { text: value(row.total) }), this.share(total, evidence),
    el('td', { text: count(row.total), title: `${samples(row.total)}, ${count(row.self)} of them its own` }));
    line.function = row;
    return line;
  }

  share(p, evidence) {
    const cell = el('td', { class: 'share' }, el('span', { text: percent(p) }), el('small', { text: ` ± ${error(p, evidence)}` }));
    cell.style.setProperty('--share', `${(100 * p).toFixed(1)}%`);
    return cell;
  }

  rowOf(event) {
    return event.target.closest('tr')?.function ?? null;
  }

  pick(row) {
    if (!row) return;
    this.on.select(row);
    this.grid.focus();
  }

  menu(event) {
    const row = this.rowOf(event);
    if (!row) return;
    event.preventDefault();
    this.on.menu(row, { x: event.clientX, y: event.clientY });
  }

  key(event) {
    const at = this.rows.findIndex(({ id }) => id === this.active);
    const page = Math.max(1, Math.floor(this.scroller.clientHeight / ROW) - 2);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.target !== this.grid || event.ctrlKey || event.altKey || event.metaKey) return;
    if (event.key in steps && this.rows.length) this.move(at < 0 ? 0 : Math.min(this.rows.length - 1, Math.max(0, at + steps[event.key])));
    else if (event.key === 'Enter' && at >= 0) this.on.zoom(this.rows[at]);
    else if ((event.key === 'ContextMenu' || (event.key === 'F10' && event.shiftKey)) && at >= 0) {
      const { left, bottom } = byId(`f${this.active}`).getBoundingClientRect();
      this.on.menu(this.rows[at], { x: left + 40, y: bottom });
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }

  move(index) {
    const top = index * ROW;
    const room = this.scroller.clientHeight - this.grid.tHead.offsetHeight;
    if (top < this.scroller.scrollTop) this.scroller.scrollTop = top;
    else if (top + ROW > this.scroller.scrollTop + room) this.scroller.scrollTop = top + ROW - room;
    this.on.select(this.rows[index]);
  }
}

function spacer(rows) {
  const line = el('tr', { 'aria-hidden': 'true', class: 'spacer' });
  line.style.height = `${rows * ROW}px`;
  return line;
}
