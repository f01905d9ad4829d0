// Wires the page. The one place that holds state: a change goes through `go` (the reader did something) or `arrived`
// (the server answered); both derive everything anew, profile → tree → zoom → matches → rows, and show it.

import { isDark, KINDS } from './colours.js';
import { decode, functionsOf, widest } from './data.js';
import { showDetails } from './details.js';
import { button, byId, el, refill } from './dom.js';
import { Feed } from './feed.js';
import { around } from './focus.js';
import { setUpSpan, showLegend, showTags, showWindows } from './filters.js';
import { FlameGraph } from './flame.js';
import { plural } from './format.js';
import { notices, showHeader, whyEmpty } from './header.js';
import { expose } from './hook.js';
import { setUpKeys } from './keys.js';
import { openMenu, setUpMenu } from './menu.js';
import { shortName } from './names.js';
import { linkTo, namesTo, resolve } from './path.js';
import { showProcesses } from './processes.js';
import { reshape } from './reshape.js';
import { exactly, match, total } from './search.js';
import { address, read, write } from './state.js';
import { FunctionTable } from './table.js';
import { showTraces } from './traces.js';
import { isState, nextKind, otherUnit, showTypes } from './types.js';

const WIDE = 1100;      // from this width on, graph and table stand side by side
const VIEWS = ['graph', 'table', 'both'];
const PROCESS = 7;      // the kind of frames that are no functions
const system = matchMedia('(prefers-color-scheme: dark)');

let state = read();
/** What was derived last; `place` is the match stepped to, `chosen` the chosen function. */
const view = {
  profile: null, tree: null, zoom: 0, found: true, rows: [], place: -1, chosen: -1, answers: 0, failure: '', timings: {},
};

const nameId = (node) => view.profile.frames.name[view.tree.frame[node]];
const nameOf = (node) => (node ? view.profile.names[nameId(node)] : 'all');
const pathTo = (node) => namesTo(view.profile, view.tree, node);
const nodeOf = ({ id }) => widest(view.profile, view.tree, id, view.zoom);
const types = () => view.profile?.answer.types ?? [];
const moving = () => !state.to;

const feed = new Feed(() => address(state), moving, { answer: arrived, failure: failed });
const graph = new FlameGraph(byId('flame'), {
  point: pointNode, zoom: zoomTo, menu: (node, at) => menuFor(nameOf(node), node, at),
});
const table = new FunctionTable(byId('rows'), {
  point: pointRow, choose, sort, zoom: (row) => zoomTo(nodeOf(row)), menu: (row, at) => menuFor(row.name, nodeOf(row), at),
});

/** Changes the view and its address. */
function go(change, { replace = false, reveal = false, node } = {}) {
  const asked = address(state);
  state = { ...state, ...change };
  derive(node);
  write(state, view.tree && view.found ? linkTo(view.profile, view.tree, view.zoom) : state.path, replace);
  show(reveal);
  if (address(state) !== asked) feed.load();
}

function arrived(answer) {
  const started = performance.now();
  const selected = graph.selected > 0 ? pathTo(graph.selected) : [];
  const chosen = view.profile?.names[view.chosen];
  Object.assign(view, { profile: decode(answer), answers: view.answers + 1, failure: '' });
  derive();
  view.chosen = table.chosen = view.profile.ids.get(chosen) ?? -1;     // each answer numbers its names anew
  graph.selected = resolve(view.profile, view.tree, selected, true).node || -1;
  show(view.answers === 1);
  view.timings.arrived = performance.now() - started;
}

function failed(text) {
  view.failure = text;
  show();
}

/** `known` is the node that the path leads to, where that is known. */
function derive(known) {
  const { profile, tree } = view;
  if (!profile) return;
  const { frames, names, kinds } = profile;
  const isHidden = (id, frame) => state.h.includes(names[id]) || state.h.includes(`@${KINDS[kinds[frame]][0]}`);
  const hidden = frames.name.map(isHidden);
  const shaped = (base) => (state.h.length || state.r ? reshape({ frames, tree: base }, hidden, state.r) : base);
  const focus = state.f ? around(profile, profile.ids.get(state.f), state.callers) : null;
  view.tree = shaped(focus ?? profile.tree);
  view.focus = Boolean(focus);
  if (view.tree !== tree) graph.selected = -1;
  // A path from before a function was hidden still has its name.
  const gone = new Set(state.whole ? [] : frames.name.filter((_, frame) => hidden[frame]).map((id) => names[id]));
  const again = (name, i, path) => state.r && name === path[i - 1];
  const path = state.path.filter((name, ...rest) => state.whole || !(gone.has(name) || again(name, ...rest)));
  const { node, found } = known >= 0 ? { node: known, found: true } : resolve(profile, view.tree, path, state.whole);
  if (found) state = { ...state, path: pathTo(node), whole: true };
  const { hits, error } = match(names, state.q, state.case);
  // Callers are in turned stacks, in which no value is a function's own.
  const [within, root] = focus && state.callers ? [shaped(around(profile, profile.ids.get(state.f), '')), 0] : [view.tree, node];
  const rows = functionsOf(profile, within, root).filter(({ id, frame }) => kinds[frame] !== PROCESS && (!hits || hits[id]));
  const matches = hits && total(profile, view.tree, node, hits);
  if (!(view.place < matches?.nodes.length)) view.place = -1;
  Object.assign(view, { zoom: node, found, hits, error, rows, matches });
}

function show(reveal = false) {
  const { profile, tree, zoom, hits, rows } = view;
  document.documentElement.dataset.theme = state.theme || (system.matches ? 'dark' : 'light');
  view.shown = state.view || (innerWidth >= WIDE ? 'both' : 'graph');
  byId('main').dataset.view = view.shown;
  showWindows(state, go);
  showTypes(state, types(), go);
  showControls();
  showNotices();
  if (!profile) return;
  showHeader(profile, state);
  showProcesses(profile.answer.targets, state, go);
  showTags(profile, state.tag, (tag) => go({ tag }));
  showTraces(profile, state.tag, (tag) => go({ tag }));
  showLegend(profile, state.h, (h) => go({ h, whole: false }));
  showPath();
  showFound();
  for (const id of ['graph', 'table']) byId(id).hidden = !profile.weight;
  byId('empty').hidden = profile.weight > 0;
  whyEmpty(profile, state).forEach((text, i) => { byId('empty').children[i].textContent = text; });
  graph.show(profile, tree, { zoom, hits, upward: state.root === 'bottom' }, reveal);
  table.show(profile, rows, state.sort);
  const busy = graph.pointer || document.querySelector('footer:hover, tbody:hover');
  if (!busy) pointNode(Math.max(graph.selected, 0) || zoom);
}

function showControls() {
  const on = moving() && !feed.paused;
  const pressed = { live: on, case: state.case, growth: state.growth, collapse: state.r, upward: state.root === 'bottom' };
  for (const name of VIEWS) pressed[name[0]] = name === view.shown;
  for (const [id, value] of Object.entries(pressed)) byId(id).setAttribute('aria-pressed', String(Boolean(value)));
  byId('live').textContent = view.failure ? 'No answer' : on ? 'Live' : moving() ? 'Paused' : 'Fixed';
  byId('live').classList.toggle('red', Boolean(view.failure));
  byId('query').value = state.q;
  byId('unfocus').hidden = !state.f;
  for (const format of ['pprof', 'folded']) byId(format).href = address(state, format);
}

function showNotices() {
  const { profile, failure, found, error } = view;
  const list = [
    failure && ['red', `${failure}. Trying again${profile ? '; what is shown came before' : ''}.`],
    !found && ['amber', `“${shortName(state.path.at(-1))}” is not in the profile now; its nearest ancestor is shown.`],
    state.f && profile && !view.focus && ['amber', `“${shortName(state.f)}” is not in the profile now; all is shown.`],
    error && ['amber', error], ...(profile ? notices(profile) : []),
  ].filter(Boolean);
  const line = ([level, text, code]) => el('p', { class: level }, text, code && el('code', { text: code }));
  refill(byId('notices'), list, () => list.map(line));
}

/** The path of the zoom, its middle left out. */
function showPath() {
  const path = [];
  for (let node = view.zoom; node >= 0; node = view.tree.parent[node]) path.unshift(node);
  if (path.length > 5) path.splice(1, path.length - 4);
  const all = view.focus ? `${state.callers ? 'callers' : 'calls'} of ${shortName(state.f)}` : 'all';
  const text = (node) => (node ? `› ${shortName(nameOf(node))}` : all);
  refill(byId('path'), [view.answers, all, path], () =>
    path.map((node, i) => button(i, { text: text(node), onclick: () => zoomTo(node) })));
}

function showFound() {
  const { matches, profile, rows, place } = view;
  const places = () => `${place < 0 ? '' : `${place + 1} of `}${plural(matches.nodes.length, 'place')}`;
  const found = () => [places(), plural(rows.length, 'function'), profile.figures(matches.value)].join(' · ');
  byId('found').textContent = !matches ? '' : matches.nodes.length ? found() : 'no match';
}

function zoomTo(node) {
  if (node >= 0) go({ path: pathTo(node), whole: true }, { reveal: true, node });
}

/** A second click on a column turns its order. */
function sort(key) {
  const rising = state.sort === `-${key}` || (key === 'name' && state.sort !== key);
  go({ sort: rising ? key : `-${key}` }, { replace: true });
}

function search(change) {
  view.place = -1;
  go(change, { replace: true });
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
  if (node >= 0) byId('say').textContent = `${nameOf(node)}: ${view.profile.figures(view.tree.total[node])}`;
}

/** Lights a node's function and says all about it at the foot; with -1, that stays. */
function pointNode(node) {
  const pointed = node >= 0 && (graph.pointer || node === graph.selected);
  light(node > 0 && pointed ? nameId(node) : view.chosen);
  if (node >= 0) showNode(node);
}

function pointRow(row) {
  light(row ? row.id : view.chosen);
  const within = view.tree.total[view.zoom];
  if (row) showDetails(view.profile, row.frame, { ...row, within, note: 'wherever it is called' });
}

function light(id) {
  graph.light(id);
  table.light(id);
}

function showNode(node) {
  const { total, self, frame } = view.tree;
  const figures = { total: total[node], self: self[node], within: total[view.zoom] };
  showDetails(view.profile, node ? frame[node] : -1, figures);
}

/** A function is chosen in the table: it stays lit, and its widest box comes into sight. */
function choose(row) {
  view.chosen = row.id;
  table.choose(row.id);
  pointRow(row);
  graph.reveal(nodeOf(row));
}

function menuFor(name, node, at) {
  openMenu(at, shortName(name), {
    Zoom: () => zoomTo(node),
    Focus: () => focusOn(name, ''),
    Callers: () => focusOn(name, '1'),
    Hide: () => go({ h: [...state.h, name], whole: false }),
    'Search this': () => search({ q: exactly(name), case: '1' }),
    // Without the right to the clipboard, as on plain HTTP from afar, the reader copies it.
    'Copy name': () => (navigator.clipboard ? navigator.clipboard.writeText(name) : prompt('Name', name)),
  });
}

/** Shows the samples of one function alone; of none, all. */
function focusOn(f, callers) {
  go({ f, callers, path: [], whole: true }, { reveal: true });
}

function escape() {
  const open = document.querySelector('details[open]');
  document.activeElement.blur();
  if (open) open.open = false;
  else if (state.q) search({ q: '' });
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
  const upward = () => go({ root: state.root === 'top' ? 'bottom' : 'top' }, { reveal: true });
  const collapse = () => go({ r: state.r ? '' : '1', whole: false });
  const grow = () => { if (isState(state.type)) go({ growth: state.growth ? '' : '1' }); };
  const theme = () => go({ theme: isDark() ? 'light' : 'dark' }, { replace: true });
  const help = () => byId('help').showModal();
  const walk = (key) => { if (graph.layout) select(graph.neighbour(key)); };
  setUpKeys([
    [['/'], 'search (also Ctrl+F)', () => byId('query').select()],
    [['n', 'N'], 'next match, previous match', (key) => step(key === 'n' ? 1 : -1)],
    [['ArrowUp', 'ArrowDown', 'ArrowLeft', 'ArrowRight'], 'move over boxes or rows', walk],
    [['Enter'], 'zoom to the box or row', () => zoomTo(graph.selected)],
    [['0'], 'reset the zoom', () => zoomTo(0)],
    [['Escape'], 'close, then clear search, then selection', escape],
    [['1', '2', '3'], 'graph, table, both', (key) => go({ view: VIEWS[key - 1] })],
    [['i'], 'root at the top or at the bottom', upward],
    [['r'], 'collapse recursion', collapse],
    [['d'], 'light or dark', theme],
    [['t'], 'CPU, heap in use, allocated, …', () => go(nextKind(state, types()))],
    [['b'], 'bytes or objects, time or count', () => go(otherUnit(state))],
    [['g'], 'growth of the heap or of goroutines', grow],
    [[' '], 'pause or resume', pause],
    [['?'], 'this help', help],
  ]);
  const matchCase = () => search({ case: state.case ? '' : '1' });
  const unfocus = () => focusOn('', '');
  const clicks = { live: pause, theme, ask: help, growth: grow, upward, collapse, unfocus, case: matchCase };
  for (const name of VIEWS) clicks[name[0]] = () => go({ view: name });
  for (const [id, run] of Object.entries(clicks)) byId(id).addEventListener('click', run);
  byId('query').addEventListener('input', ({ target }) => search({ q: target.value }));
  byId('query').addEventListener('keydown', ({ key, shiftKey }) => { if (key === 'Enter') step(shiftKey ? -1 : 1); });
  setUpSpan(() => view.profile.answer, go);
  setUpMenu();
  addEventListener('popstate', () => {
    const asked = address(state);
    state = read();
    derive();
    show(true);
    if (address(state) !== asked) feed.load();
  });
  addEventListener('resize', () => show());
  system.addEventListener('change', () => show());
  expose(() => state, view, graph, feed);
}

setUp();
show();
feed.load();
