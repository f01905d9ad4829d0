// The flame graph, on a canvas as tall as the window, whatever the depth of the stacks. Draws the rows in sight, at
// most once per animation frame.

import { colour, INKS, isDark } from './colours.js';
import { extent, hit, layOut } from './layout.js';
import { forms } from './names.js';

const ROW = 20;
const PADDING = 5;

export class FlameGraph {
  /** `on`: `point(node)`, `zoom(node)`, `menu(node, at)`; node -1 is none. */
  constructor(scroller, on) {
    const canvas = scroller.querySelector('canvas');
    Object.assign(this, { scroller, canvas, on, context: canvas.getContext('2d') });
    this.font = `12px ${getComputedStyle(canvas).fontFamily}`;
    Object.assign(this, { lit: -1, selected: -1, pointer: null, letters: new Map(), timings: {} });
    const listen = (type, run) => scroller.addEventListener(type, run);
    listen('scroll', () => { this.pointed(); this.redraw(); });
    listen('pointermove', (event) => { this.pointer = event; this.pointed(); });
    listen('pointerleave', () => { this.pointer = null; on.point(-1); });
    listen('click', (event) => on.zoom(this.nodeAt(event)));
    listen('contextmenu', (event) => this.menu(event));
    new ResizeObserver(() => this.measure()).observe(scroller);
  }

  /** Shows a tree; `view` is `{ zoom, hits, upward }`. With `reveal` it scrolls to the zoomed box. */
  show(profile, tree, view, reveal) {
    Object.assign(this, { profile, tree, view, labels: new Map() });
    this.measure();
    if (reveal) this.reveal(view.zoom, true);
    this.pointed();
  }

  measure() {
    const { canvas, scroller: { clientWidth: width, clientHeight: height } } = this;
    if (!this.tree || !width || !height) return;
    const started = performance.now();
    this.layout = layOut(this.tree, this.view.zoom, width);
    this.timings.layout = performance.now() - started;
    this.height = Math.max(this.layout.rows.length * ROW + 2, height);
    canvas.parentElement.style.height = `${this.height}px`;
    for (const [side, size] of Object.entries({ width, height })) {
      const pixels = Math.round(size * devicePixelRatio);
      if (canvas[side] !== pixels) canvas[side] = pixels;     // setting it clears the canvas
      canvas.style[side] = `${size}px`;
    }
    this.redraw();
  }

  /** Lights every box of a function. */
  light(id) {
    if (id !== this.lit) this.redraw();
    this.lit = id;
  }

  /** Marks a node as the one the keyboard is at. */
  select(node) {
    this.selected = node;
    if (node >= 0) this.reveal(node);
    this.redraw();
  }

  /** Scrolls a node into sight; with `anchor`, to where its subtree has most room. */
  reveal(node, anchor = false) {
    if (!this.layout) return;
    const { scroller, view: { upward } } = this;
    const most = this.top(this.tree.depth[node]) - ROW;
    const least = most + 3 * ROW - scroller.clientHeight;
    if (anchor) scroller.scrollTop = upward ? least + ROW : most - ROW;
    else scroller.scrollTop = Math.min(Math.max(scroller.scrollTop, least), most);
  }

  /** Where a row lies in the scrolled content. */
  top(row) {
    return this.view.upward ? this.height - 1 - (row + 1) * ROW : 1 + row * ROW;
  }

  /** The row that is at `y` on the canvas. */
  rowAt(y) {
    const down = y + this.scroller.scrollTop - 1;
    return Math.floor((this.view.upward ? this.height - 2 - down : down) / ROW);
  }

  nodeAt({ clientX, clientY }) {
    const { left, top } = this.canvas.getBoundingClientRect();
    return this.layout ? hit(this.layout, this.rowAt(clientY - top), clientX - left) : -1;
  }

  pointed() {
    if (!this.pointer || !this.layout) return;
    const node = this.nodeAt(this.pointer);
    this.canvas.style.cursor = node < 0 ? '' : 'pointer';
    this.on.point(node);
  }

  /** The menu key asks for the selected node's menu, the mouse for that of the one it is at. */
  menu(event) {
    const node = event.button !== 2 ? this.selected : this.nodeAt(event);
    if (node < 0) return;
    event.preventDefault();
    this.on.menu(node, event.button !== 2 ? this.box(node) : { x: event.clientX, y: event.clientY });
  }

  /** Where a node is drawn, in the window's coordinates. */
  box(node) {
    const { left, top } = this.canvas.getBoundingClientRect();
    const [x, width] = extent(this.layout, node);
    const y = this.top(this.tree.depth[node]) - this.scroller.scrollTop;
    return { x: left + x, y: top + y, width, height: ROW, visible: y >= 0 && y + ROW <= this.scroller.clientHeight };
  }

  /** The node an arrow key leads to. */
  neighbour(key) {
    const { layout: { rows }, tree: { depth, parent, total }, selected: from, view: { upward, zoom } } = this;
    if (from < 0) return zoom;
    const row = rows[depth[from]] ?? [];
    const aside = { ArrowLeft: -1, ArrowRight: 1 }[key];
    if (aside) return row[row.indexOf(from) + aside] ?? from;
    if (key === (upward ? 'ArrowDown' : 'ArrowUp')) return Math.max(parent[from], 0);
    const children = (rows[depth[from] + 1] ?? []).filter((node) => parent[node] === from);
    return children.sort((a, b) => total[b] - total[a])[0] ?? from;
  }

  redraw() {
    this.due ||= requestAnimationFrame(() => { this.due = 0; this.draw(); });
  }

  draw() {
    const started = performance.now();
    const { context, layout: { rows, width }, canvas } = this;
    const ratio = canvas.width / width;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, canvas.width, canvas.height);
    Object.assign(context, { font: this.font, textBaseline: 'middle', lineWidth: 2 });
    const ends = [this.rowAt(0), this.rowAt(canvas.height / ratio)].sort((a, b) => a - b);
    for (let row = Math.max(0, ends[0]); row <= ends[1] && row < rows.length; row++) this.drawRow(row, ratio);
    this.timings.draw = performance.now() - started;
  }

  drawRow(row, ratio) {
    const { context, layout, tree, profile: { frames, packages, kinds }, view: { hits, zoom } } = this;
    const inks = INKS[isDark() ? 'dark' : 'light'];
    const y = this.top(row) - this.scroller.scrollTop;
    for (const node of layout.rows[row]) {
      const frame = tree.frame[node];
      const id = frames.name[frame];
      const [x, w] = extent(layout, node);
      const left = Math.round(x * ratio) / ratio;
      const width = Math.max(Math.round((x + w) * ratio) / ratio - left - (w > 3 ? 1 : 0), 1 / ratio);
      const faded = hits ? !hits[id] : row < tree.depth[zoom];
      context.globalAlpha = faded ? inks.veil : 1;
      context.fillStyle = node ? colour(kinds[frame], packages[frame]) : inks.root;
      context.fillRect(left, y, width, ROW - 1);
      context.globalAlpha = 1;
      const selected = node === this.selected;
      context.strokeStyle = selected ? inks.selected : inks.lit;
      if (selected || (id === this.lit && node)) context.strokeRect(left + 1, y + 1, Math.max(width - 2, 1), ROW - 3);
      context.fillStyle = inks.match;
      if (hits?.[id]) context.fillRect(left, y + ROW - 4, width, 3);
      context.fillStyle = faded ? inks.faded : inks.text;
      if (width > 22) context.fillText(this.label(id, width - 2 * PADDING), left + PADDING, y + ROW / 2);
    }
  }

  /** The longest form of a name that fits into `room`. */
  label(id, room) {
    const list = this.labels.get(id) ?? forms(this.profile.names[id]).map((text) => [text, this.widthOf(text)]);
    this.labels.set(id, list);
    const whole = list.find(([, width]) => width <= room);
    if (whole) return whole[0];
    const [text] = list.at(-1);
    let end = 0;
    for (let left = room - this.widthOf('…'); end < text.length && (left -= this.widthOf(text[end])) >= 0;) end++;
    return end > 1 ? `${text.slice(0, end)}…` : '';
  }

  /** From the widths of letters: to measure whole texts is what would cost most. */
  widthOf(text) {
    let sum = 0;
    for (const c of text) {
      if (!this.letters.has(c)) this.letters.set(c, this.context.measureText(c).width);
      sum += this.letters.get(c);
    }
    return sum;
  }
}
