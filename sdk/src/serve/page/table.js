// The table of functions: the figures of the graph as text. Sorted, searched, and walked with the keyboard.
//
// Only the rows in sight are in the document, between two spacers; `aria-rowcount` and `aria-rowindex` tell the rest.

import { byId, button, el, swatch } from './dom.js';
import { count, error, percent } from './format.js';
import { shortName } from './names.js';

const ROW = 26;
const LETTER = 7.5;     // about the width of one, for names

/** Title and sort key; a share goes with the value before it. */
const COLUMNS = [['Function', 'name'], ['Self', 'self'], ['%'], ['Total', 'total'], ['%'], ['Samples', 'samples']];

export class FunctionTable {
  /** `on`: `point(row)`, `choose(row)`, `zoom(row)`, `menu(row, at)`, `sort(key)`. */
  constructor(scroller, on) {
    const grid = scroller.querySelector('table');
    Object.assign(this, { scroller, grid, on, body: grid.tBodies[0], rows: [], chosen: -1 });
    const head = ([text, key]) => el('th', { scope: 'col' }, key ? button(key, { text, onclick: () => on.sort(key) })
      : el('span', { title: 'share and standard error' }, text, el('small', { text: ' ±' })));
    grid.tHead.append(el('tr', { 'aria-rowindex': 1 }, ...COLUMNS.map(head)));
    const listen = (type, run) => this.body.addEventListener(type, (event) => {
      const row = event.target.closest('tr')?.function;
      if (row) run(row, event);
    });
    listen('pointerover', (row) => on.point(row));
    listen('click', (row) => { on.choose(row); grid.focus(); });
    listen('dblclick', (row) => on.zoom(row));
    listen('contextmenu', (row, event) => {
      event.preventDefault();
      on.menu(row, { x: event.clientX, y: event.clientY });
    });
    this.body.addEventListener('pointerleave', () => on.point(null));
    grid.addEventListener('keydown', (event) => this.key(event));
    scroller.addEventListener('scroll', () => this.draw());
    new ResizeObserver(() => this.draw()).observe(scroller);
  }

  /** Shows functions in the order of `sort`: a key, with `-` in front for falling values. */
  show(profile, rows, sort) {
    const key = sort.replace('-', '');
    const value = (row) => row[key === 'samples' ? 'total' : key];
    const sign = sort === key ? 1 : -1;
    const falling = (a, b) => (a.total === b.total ? (a.name < b.name ? -1 : 1) : b.total - a.total);
    rows.sort((a, b) => (value(a) === value(b) ? falling(a, b) : value(a) < value(b) ? -sign : sign));
    Object.assign(this, { profile, rows });
    this.grid.classList.toggle('heap', !profile.timed);     // bytes have no column of samples
    for (const { dataset, parentElement } of this.grid.tHead.querySelectorAll('button')) {
      parentElement.setAttribute('aria-sort', dataset.key !== key ? 'none' : sign > 0 ? 'ascending' : 'descending');
    }
    this.grid.setAttribute('aria-rowcount', rows.length + 1);
    this.draw();
  }

  choose(id) {
    this.chosen = id;
    this.draw();
  }

  light(id) {
    this.lit = id;
    for (const line of this.body.rows) line.classList.toggle('lit', line.function?.id === id);
  }

  draw() {
    const { scroller: { scrollTop, clientHeight }, rows, grid } = this;
    if (!clientHeight || !this.profile) return;
    this.room = (grid.tHead.rows[0].cells[0].clientWidth - 34) / LETTER;
    const first = Math.max(0, Math.min(Math.floor(scrollTop / ROW), rows.length) - 4);
    const last = Math.min(rows.length, first + Math.ceil(clientHeight / ROW) + 8);
    const lines = rows.slice(first, last).map((row, i) => this.line(row, first + i));
    this.body.replaceChildren(spacer(first), ...lines, spacer(rows.length - last));
    grid.setAttribute('aria-activedescendant', byId(`f${this.chosen}`) ? `f${this.chosen}` : '');
  }

  line(row, index) {
    const { packages, kinds, worth, isFew } = this.profile;
    const { id, name, frame, self, total } = row;
    const state = `${isFew(total) ? 'few' : ''} ${id === this.lit ? 'lit' : ''}`;
    const chosen = String(id === this.chosen);
    const line = el('tr', { id: `f${id}`, class: state, 'aria-rowindex': index + 2, 'aria-selected': chosen },
      el('td', { title: name }, swatch(kinds[frame], packages[frame]), shortName(name, this.room)),
      el('td', { text: worth(self) }), this.share(self), el('td', { text: worth(total) }), this.share(total),
      el('td', { text: count(total) }));
    line.function = row;
    return line;
  }

  share(value) {
    const p = this.profile.share(value);
    const cell = el('td', { class: 'share' }, percent(p), el('small', { text: ` ± ${error(p, this.profile.evidence)}` }));
    cell.title = cell.textContent;
    cell.style.setProperty('--share', `${100 * p}%`);
    return cell;
  }

  key(event) {
    const { rows, on, scroller } = this;
    const at = rows.findIndex(({ id }) => id === this.chosen);
    const page = Math.max(1, Math.floor(scroller.clientHeight / ROW) - 2);
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity }[event.key];
    if (event.target !== this.grid || event.ctrlKey || event.altKey || event.metaKey || !rows.length) return;
    if (step) this.walk(at < 0 ? 0 : Math.min(rows.length - 1, Math.max(0, at + step)));
    else if (event.key === 'Enter' && at >= 0) on.zoom(rows[at]);
    else if (event.key === 'ContextMenu' && byId(`f${this.chosen}`)) {
      const { left, bottom } = byId(`f${this.chosen}`).getBoundingClientRect();
      on.menu(rows[at], { x: left + 40, y: bottom });
    } else return;
    event.preventDefault();
  }

  walk(index) {
    const { scroller, grid: { tHead }, rows } = this;
    const least = (index + 1) * ROW + tHead.offsetHeight - scroller.clientHeight;
    scroller.scrollTop = Math.min(Math.max(scroller.scrollTop, least), index * ROW);
    this.on.choose(rows[index]);
  }
}

function spacer(rows) {
  const line = el('tr', { 'aria-hidden': 'true' });
  line.style.height = `${rows * ROW}px`;
  return line;
}
