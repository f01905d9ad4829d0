// The flame graph on a canvas as tall as the window, whatever the depth of the stacks.
//
// In: a profile, a tree and where the view is zoomed to. Out: the functions that are pointed at, clicked or reached with
// the arrow keys. Draws only the rows in sight, at most once per animation frame.

import { colour } from './colours.js';
import { extent, hit, layOut } from './layout.js';
import { forms } from './names.js';

const ROW = 20;
const FONT = '12px system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif';
const PADDING = 5;

export class FlameGraph {
  /** `on.point(node)`, `on.zoom(node)`, `on.select(node)`, `on.menu(node, event)`; nodes are -1 for none. */
  constructor(scroller, on) {
    this.scroller = scroller;
    this.canvas = scroller.querySelector('canvas');
    this.tall = scroller.firstElementChild;
    this.context = this.canvas.getContext('2d');
    this.on = on;
    this.lit = -1;            // the function whose boxes are lit
    this.selected = -1;       // the node the keyboard is at
    this.pointer = null;
    this.letters = new Map();
    this.timings = { layout: 0, draw: 0 };
    scroller.addEventListener('scroll', () => { this.pointed(); this.redraw(); });
    scroller.addEventListener('pointermove', (event) => { this.pointer = event; this.pointed(); });
    scroller.addEventListener('pointerleave', () => { this.pointer = null; on.point(-1); });
    this.canvas.addEventListener('click', (event) => this.clicked(event));
    scroller.addEventListener('contextmenu', (event) => this.menu(event));
    new ResizeObserver(() => this.resized()).observe(scroller);
  }

  /** Shows a tree. `view` is `{ zoom, hits, root, theme }`; `reveal` scrolls to the zoomed box. */
  show(profile, tree, view, reveal) {
    const turned = this.view && this.view.root !== view.root;
    if (this.profile?.names !== profile.names) this.labels = new Map();
    Object.assign(this, { profile, tree, view });
    this.resized();
    if (reveal || turned) this.reveal(view.zoom, true);
    this.pointed();
  }

  resized() {
    if (!this.tree) return;
    const { clientWidth: width, clientHeight: height } = this.scroller;
    if (!width || !height) return;
    const started = performance.now();
    this.layout = layOut(this.tree, this.view.zoom, width);
    this.timings.layout = performance.now() - started;
    this.tall.style.height = `${Math.max(this.layout.rows.length * ROW + 2, height)}px`;
    const ratio = window.devicePixelRatio || 1;
    const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
    if (this.canvas.width !== w || this.canvas.height !== h) {
      Object.assign(this.canvas, { width: w, height: h });
      this.canvas.style.width = `${width}px`;
      this.canvas.style.height = `${height}px`;
    }
    this.redraw();
  }

  /** Lights every box of a function. */
  light(id) {
    if (id !== this.lit) { this.lit = id; this.redraw(); }
  }

  /** Moves the keyboard's place to a node and brings it into sight. */
  select(node) {
    this.selected = node;
    if (node >= 0) this.reveal(node, false);
    this.redraw();
  }

  /** Scrolls to a node: to the edge the stacks grow from with `anchor`, else just into sight. */
  reveal(node, anchor) {
    if (!this.layout) return;
    const { scroller } = this;
    const room = scroller.clientHeight;
    const y = this.top(this.tree.depth[node]);
    if (anchor) scroller.scrollTop = this.view.root === 'top' ? y - 2 * ROW : y + 3 * ROW - room;
    else if (y < scroller.scrollTop) scroller.scrollTop = y - ROW;
    else if (y + ROW > scroller.scrollTop + room) scroller.scrollTop = y + 2 * ROW - room;
  }

  /** Where a row lies in the scrolled content. */
  top(row) {
    return this.view.root === 'top' ? row * ROW + 1 : Math.max(this.layout.rows.length * ROW + 2, this.scroller.clientHeight) - (row + 1) * ROW - 1;
  }

  rowAt(y) {
    const inside = y + this.scroller.scrollTop;
    return Math.floor((this.view.root === 'top' ? inside - 1 : this.top(0) + ROW - inside) / ROW);
  }

  nodeAt(event) {
    if (!this.layout) return -1;
    const { left, top } = this.canvas.getBoundingClientRect();
    return hit(this.layout, this.rowAt(event.clientY - top), event.clientX - left);
  }

  pointed() {
    if (!this.pointer) return;
    const node = this.nodeAt(this.pointer);
    this.canvas.style.cursor = node < 0 ? 'default' : 'pointer';
    this.on.point(node);
  }

  clicked(event) {
    const node = this.nodeAt(event);
    if (node >= 0) this.on.zoom(node);
  }

  menu(event) {
    const keyboard = event.button !== 2 && this.selected >= 0;
    const node = keyboard ? this.selected : this.nodeAt(event);
    if (node < 0) return;
    event.preventDefault();
    const box = this.box(node);
    this.on.menu(node, keyboard ? { x: box.x + Math.min(box.width / 2, 80), y: box.y + ROW } : { x: event.clientX, y: event.clientY });
  }

  /** Where a node is drawn, in the window's coordinates. */
  box(node) {
    const { left, top } = this.canvas.getBoundingClientRect();
    const [x, width] = extent(this.layout, node);
    const y = this.top(this.tree.depth[node]) - this.scroller.scrollTop;
    return { x: left + x, y: top + y, width, height: ROW, visible: y > -ROW && y < this.scroller.clientHeight };
  }

  /** The neighbour of the selected node in the direction of an arrow key. */
  neighbour(key) {
    const { layout, tree } = this;
    const from = this.selected >= 0 ? this.selected : this.view.zoom;
    const deeper = this.view.root === 'top' ? 'ArrowDown' : 'ArrowUp';
    if (this.selected < 0) return from;
    const row = layout.rows[tree.depth[from]] ?? [];
    if (key === 'ArrowLeft' || key === 'ArrowRight') return row[row.indexOf(from) + (key === 'ArrowRight' ? 1 : -1)] ?? from;
    if (key !== deeper) return Math.max(tree.parent[from], 0);
    const below = (layout.rows[tree.depth[from] + 1] ?? []).filter((node) => tree.parent[node] === from);
    return below.reduce((best, node) => (best === from || tree.total[node] > tree.total[best] ? node : best), from);
  }

  redraw() {
    if (this.pending || !this.layout) return;
    this.pending = requestAnimationFrame(() => { this.pending = 0; this.draw(); });
  }

  draw() {
    const started = performance.now();
    const { context, layout, scroller, canvas } = this;
    this.readStyle();
    const ratio = canvas.width / layout.width;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, layout.width, canvas.height / ratio);
    context.font = FONT;
    context.textBaseline = 'middle';
    const [a, b] = [this.rowAt(0), this.rowAt(scroller.clientHeight)];
    const last = Math.min(Math.max(a, b), layout.rows.length - 1);
    for (let row = Math.max(0, Math.min(a, b)); row <= last; row++) this.drawRow(row, ratio);
    this.timings.draw = performance.now() - started;
  }

  drawRow(row, ratio) {
    const { layout, view: { hits, zoom, theme }, profile: { frames, packages, kinds }, tree, context, style } = this;
    const y = this.top(row) - this.scroller.scrollTop;
    for (const node of layout.rows[row]) {
      const frame = tree.frame[node];
      const name = frames.name[frame];
      const [x, w] = extent(layout, node);
      const left = Math.round(x * ratio) / ratio;
      const width = Math.max(Math.round((x + w) * ratio) / ratio - left - (w > 3 ? 1 : 0), 1 / ratio);
      const faded = hits ? !hits[name] : tree.depth[node] < tree.depth[zoom];
      context.fillStyle = node === 0 ? style.root : colour(kinds[frame], packages[frames.package[frame]], theme);
      context.globalAlpha = faded ? style.faded : 1;
      context.fillRect(left, y, width, ROW - 1);
      context.globalAlpha = 1;
      if (hits && hits[name]) this.mark(left, y, width, style.match);
      if (name === this.lit && node) this.outline(left, y, width, style.lit);
      if (node === this.selected) this.outline(left, y, width, style.accent);
      if (width > 22) this.label(node, name, left, y, width, faded ? style.muted : style.ink);
    }
  }

  mark(left, y, width, fill) {
    this.context.fillStyle = fill;
    this.context.fillRect(left, y + ROW - 4, width, 3);
  }

  outline(left, y, width, stroke) {
    const { context } = this;
    context.strokeStyle = stroke;
    context.lineWidth = 2;
    if (width > 4) context.strokeRect(left + 1, y + 1, width - 2, ROW - 3);
    else { context.fillStyle = stroke; context.fillRect(left, y, Math.max(width, 1), ROW - 1); }
  }

  /** The longest form of the name that fits. */
  label(node, name, left, y, width, ink) {
    const room = width - 2 * PADDING;
    const text = node === 0 ? 'all' : this.fitting(name, room);
    if (!text) return;
    this.context.fillStyle = ink;
    this.context.fillText(text, left + PADDING, y + ROW / 2);
  }

  fitting(id, room) {
    let list = this.labels.get(id);
    if (!list) {
      list = forms(this.profile.names[id]).map((text) => ({ text, width: this.measure(text) }));
      this.labels.set(id, list);
    }
    for (const { text, width } of list) if (width <= room) return text;
    const { text } = list.at(-1);
    let used = this.letter('…');
    let end = 0;
    while (end < text.length && (used += this.letter(text[end])) <= room) end++;
    return end > 1 ? `${text.slice(0, end)}…` : '';
  }

  /** Text width from the widths of its letters: fitting text is what costs, not boxes. */
  measure(text) {
    let width = 0;
    for (let i = 0; i < text.length; i++) width += this.letter(text[i]);
    return width;
  }

  letter(c) {
    let width = this.letters.get(c);
    if (width === undefined) {
      this.context.font = FONT;
      width = this.context.measureText(c).width;
      this.letters.set(c, width);
    }
    return width;
  }

  /** Colours that the style sheet decides. */
  readStyle() {
    if (this.style?.theme === this.view.theme) return;
    const read = getComputedStyle(this.canvas);
    const [root, ink, muted, lit, accent, match] = ['root', 'ink', 'muted', 'lit', 'accent', 'match'].map((name) => {
      this.context.fillStyle = '#000';
      return read.getPropertyValue(`--box-${name}-${this.view.theme}`).trim();
    });
    this.style = { theme: this.view.theme, root, ink, muted, lit, accent, match, faded: this.view.theme === 'dark' ? 0.3 : 0.35 };
  }
}
