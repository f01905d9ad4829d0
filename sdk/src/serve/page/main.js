// Wires the page: address and feed in, views out.
//
// The one place that holds state. A change goes through `go` (the reader did something) or `arrived` (the server
// answered); both derive everything anew, profile → tree → zoom → matches → rows, and show it.

import { KINDS, setUpTheme } from './colours.js';
import { decode, functionsOf, widest } from './data.js';
import { showDetails } from './details.js';
import { button, byId, el, refill } from './dom.js';
import { Feed } from './feed.js';
import { setUpSpan, showLegend, showTags, showWindows } from './filters.js';
import { FlameGraph } from './flame.js';
import { plural } from './format.js';
import { notices, showHeader, whyEmpty } from './header.js';
import { expose } from './hook.js';
import { setUpKeys } from './keys.js';
import { openMenu, setUpMenu } from './menu.js';
import { shortName } from './names.js';
import { linkTo, namesTo, resolve } from './path.js';
import { reshape } from './reshape.js';
import { exactly, match, total } from './search.js';
import { address, read, write } from './state.js';
import { FunctionTable } from './table.js';

const WIDE = 1100;      // from this width on, graph and table stand side by side
const VIEWS = ['graph', 'table', 'both'];

let state = read();
let failure = '';
/** What was derived last; `place` is the match stepped to, `chosen` the chosen function. */
const view = { profile: null, tree: null, zoom: 0, found: true, rows: [], place: -1, chosen: -1, answers: 0, timings: {} };

const nameId = (node) => view.profile.frames.name[view.tree.frame[node]];
const nodeOf = ({ id }) => widest(view.profile, view.tree, id, view.zoom);
const moving = () => !state.to;

const feed = new Feed(() => address(state), moving, { answer: arrived, failure: (text) => { failure = text; show(); } });
const graph = new FlameGraph(byId('flame'), { point: pointNode, zoom: zoomTo, menu: (node, at) => menuFor(nameId(node), node, at) });
const table = new FunctionTable(byId('rows'), {
  point: pointRow, choose, zoom: (row) => zoomTo(nodeOf(row)), menu: (row, at) => menuFor(row.id, nodeOf(row), at),
  sort: (key) => go({ sort: state.sort === `-${key}` || (key === 'name' && state.sort !== key) ? key : `-${key}` }, { replace: true }),
});

/** Changes the view and its address. */
function go(change, { replace = false, reveal = false } = {}) {
  const asked = address(state);
  state = { ...state, ...change };
  derive();
  write(state, view.tree && view.found ? linkTo(view.profile, view.tree, view.zoom) : state.path, replace);
  show(reveal);
  if (address(state) !== asked) feed.load();
}

function arrived(answer) {
  const started = performance.now();
  const selected = graph.selected > 0 ? namesTo(view.profile, view.tree, graph.selected) : [];
  view.profile = decode(answer);
  view.answers++;
  failure = '';
  derive();
  const { node, found } = resolve(view.profile, view.tree, selected, true);
  graph.selected = found && node ? node : -1;
  show(view.answers === 1);
  view.timings.arrived = performance.now() - started;
}

function derive() {
  const { profile, tree } = view;
  if (!profile) return;
  const { frames, names, kinds } = profile;
  const hidden = frames.name.map((id, frame) => state.hidden.includes(names[id]) || state.hidden.includes(`@${KINDS[kinds[frame]]}`));
  view.tree = state.hidden.length || state.r ? reshape(profile, hidden, state.r) : profile.tree;
  if (view.tree !== tree) graph.selected = -1;
  const { node, found } = resolve(profile, view.tree, pathIn(hidden), state.whole);
  if (found && !state.whole) state = { ...state, path: namesTo(profile, view.tree, node), whole: true };
  const { hits, error } = match(names, state.q, state.case);
  const rows = functionsOf(profile, view.tree, node).filter(({ id }) => !hits || hits[id]);
  Object.assign(view, { zoom: node, found, hits, error, rows, matches: hits && total(profile, view.tree, node, hits) });
}

/** The path as far as the tree's shape has room for it: one from before a function was hidden still has its name. */
function pathIn(hidden) {
  const { ids, frames } = view.profile;
  const gone = new Set(frames.name.filter((_, frame) => hidden[frame]));
  return state.whole ? state.path : state.path.filter((name, i, path) => !gone.has(ids.get(name)) && !(state.r && name === path[i - 1]));
}

function show(reveal = false) {
  const { profile, tree, zoom, hits, rows } = view;
  view.shown = state.view || (innerWidth >= WIDE ? 'both' : 'graph');
  byId('main').dataset.view = view.shown;
  showWindows(state, go);
  showControls();
  showNotices();
  if (!profile) return;
  showHeader(profile);
  showTags(profile.answer.tags, state.tags, (tags) => go({ tags }));
  showLegend(profile, state.hidden, (hidden) => go({ hidden, whole: false }));
  showCrumbs();
  showFound();
  for (const id of ['graph', 'table']) byId(id).hidden = !profile.weight;
  byId('empty').hidden = profile.weight > 0;
  whyEmpty(profile, state.tags.length).forEach((text, i) => { byId('empty').children[i].textContent = text; });
  graph.show(profile, tree, { zoom, hits, upward: state.root === 'bottom' }, reveal);
  table.show(profile, rows, state.sort);
  if (!graph.pointer && !document.querySelector('footer:hover, tbody:hover')) showNode(Math.max(graph.selected, 0) || zoom);
}

function showControls() {
  const on = moving() && !feed.paused;
  const pressed = { live: on, case: state.case, collapse: state.r, upward: state.root === 'bottom' };
  for (const name of VIEWS) pressed[`v-${name}`] = name === view.shown;
  for (const [id, value] of Object.entries(pressed)) byId(id).setAttribute('aria-pressed', String(Boolean(value)));
  byId('live').textContent = failure ? 'No answer' : on ? 'Live' : moving() ? 'Paused' : 'Fixed';
  byId('live').classList.toggle('red', Boolean(failure));
  byId('query').value = state.q;
  for (const format of ['pprof', 'folded']) byId(format).href = address(state, format);
}

function showNotices() {
  const list = view.profile ? notices(view.profile) : [];
  if (failure) list.unshift(['red', `${failure}. Trying again${view.profile ? '; what is shown came before' : ''}.`]);
  if (!view.found) list.push(['amber', `“${shortName(state.path.at(-1))}” is not in the profile now; its nearest ancestor is shown.`]);
  if (view.error) list.push(['amber', view.error]);
  refill(byId('notices'), list, () => list.map(([level, text, code]) => el('p', { class: level }, text, code && el('code', { text: code }))));
}

/** The path of the zoom, its middle left out. */
function showCrumbs() {
  const path = [];
  for (let node = view.zoom; node >= 0; node = view.tree.parent[node]) path.unshift(node);
  const nodes = path.length > 5 ? [0, -1, ...path.slice(-3)] : path;
  refill(byId('crumbs'), [view.answers, nodes], () => nodes.flatMap((node, i) => [i && el('span', { text: '›' }), node < 0 ? el('span', { text: '…' })
    : button(i, { text: node ? shortName(view.profile.names[nameId(node)]) : 'all', onclick: () => zoomTo(node) })]).filter(Boolean));
}

function showFound() {
  const { matches, profile, rows, place } = view;
  byId('found').textContent = !matches ? '' : !matches.nodes.length ? 'no match'
    : `${place < 0 ? '' : `${place + 1} of `}${plural(matches.nodes.length, 'place')} · ${plural(rows.length, 'function')} · ${profile.figures(matches.value)}`;
}

function zoomTo(node) {
  if (node >= 0) go({ path: namesTo(view.profile, view.tree, node), whole: true }, { reveal: true });
}

function search(q, more) {
  view.place = -1;
  go({ q, ...more }, { replace: true });
}

/** To the next match, or by -1 to the one before. */
function step(by) {
  const nodes = view.matches?.nodes ?? [];
  if (!nodes.length) return;
  view.place = (Math.max(view.place, by < 0 ? 0 : -1) + by + nodes.length) % nodes.length;
  select(nodes[view.place]);
  showFound();
}

function select(node) {
  graph.select(node);
  pointNode(node);
}

/** Lights a node's function and says all about it at the foot; with -1, that stays. */
function pointNode(node) {
  if (!view.tree) return;
  light(node > 0 ? nameId(node) : view.chosen);
  if (node >= 0) showNode(node);
}

function pointRow(row) {
  light(row ? row.id : view.chosen);
  if (row) showDetails(view.profile, row.frame, { ...row, within: view.tree.total[view.zoom], note: 'wherever it is called' });
}

function light(id) {
  graph.light(id);
  table.light(id);
}

function showNode(node) {
  const { total, self, frame } = view.tree;
  showDetails(view.profile, node ? frame[node] : -1, { total: total[node], self: self[node], within: total[view.zoom] });
}

/** A function is chosen in the table: it stays lit, and its widest box comes into sight. */
function choose(row) {
  view.chosen = row.id;
  table.choose(row.id);
  pointRow(row);
  graph.reveal(nodeOf(row));
}

function menuFor(id, node, at) {
  const name = view.profile.names[id];
  openMenu(at, shortName(name), [
    ['Zoom', () => zoomTo(node)],
    ['Hide', () => go({ hidden: [...state.hidden, name], whole: false })],
    ['Search this', () => search(exactly(name), { case: '1' })],
    // Without the right to the clipboard, as on plain HTTP from afar, the reader copies it.
    ['Copy name', () => (navigator.clipboard ? navigator.clipboard.writeText(name) : prompt('Name', name))],
  ]);
}

/** Arrow keys in the graph. */
function walk(key) {
  if (!graph.layout) return;
  const node = graph.neighbour(key);
  select(node);
  byId('say').textContent = `${node ? view.profile.names[nameId(node)] : 'all'}: ${view.profile.figures(view.tree.total[node])}`;
}

function escape() {
  const open = document.querySelector('details[open]');
  document.activeElement.blur();
  if (open) open.open = false;
  else if (state.q) search('');
  else {
    view.chosen = -1;
    table.choose(-1);
    select(-1);
  }
}

function pause() {
  if (moving()) feed.pause(!feed.paused);
  else go({ from: '-300', to: '' });
  showControls();
}

function setUp() {
  const flip = setUpTheme(() => show());
  const find = () => byId('query').select();
  const upward = () => go({ root: state.root === 'top' ? 'bottom' : 'top' }, { reveal: true });
  const collapse = () => go({ r: state.r ? '' : '1', whole: false });
  const help = () => byId('help').showModal();
  setUpKeys([
    [['/'], 'search (also Ctrl+F)', find], [['n', 'N'], 'next match, previous match', (key) => step(key === 'n' ? 1 : -1)],
    [['ArrowUp', 'ArrowDown', 'ArrowLeft', 'ArrowRight'], 'move over boxes or rows', walk], [['Enter'], 'zoom to the box or row', () => zoomTo(graph.selected)],
    [['0'], 'reset the zoom', () => zoomTo(0)], [['Escape'], 'close, then clear search, then selection', escape],
    [['1', '2', '3'], 'graph, table, both', (key) => go({ view: VIEWS[key - 1] })], [['i'], 'root at the top or at the bottom', upward],
    [['r'], 'collapse recursion', collapse], [['d'], 'light or dark', flip], [[' '], 'pause or resume', pause], [['?'], 'this help', help],
  ]);
  const clicks = { live: pause, theme: flip, ask: help, upward, collapse, case: () => search(state.q, { case: state.case ? '' : '1' }) };
  for (const name of VIEWS) clicks[`v-${name}`] = () => go({ view: name });
  for (const [id, run] of Object.entries(clicks)) byId(id).addEventListener('click', run);
  byId('query').addEventListener('input', ({ target }) => search(target.value));
  byId('query').addEventListener('keydown', ({ key, shiftKey }) => { if (key === 'Enter') step(shiftKey ? -1 : 1); });
  setUpSpan(() => (view.profile ? [view.profile.answer.from, view.profile.answer.to] : []), go);
  setUpMenu();
  document.addEventListener('pointerdown', ({ target }) => {
    for (const open of document.querySelectorAll('details[open]')) if (!open.contains(target)) open.open = false;
  });
  addEventListener('popstate', () => {
    const asked = address(state);
    state = read();
    derive();
    show(true);
    if (address(state) !== asked) feed.load();
  });
  addEventListener('resize', () => show());
  expose(() => state, view, graph, feed);
}

setUp();
feed.load();
