// Wires the page: address and feed in, views out.
//
// The one place that holds the state. A change goes through `go` (the reader did something) or `arrived` (the server
// answered); both end in `render`, which derives everything anew: profile → tree → zoom → matches → views.

import { KINDS } from './colours.js';
import { decode, functionsOf, widest } from './data.js';
import { figures, showDetails } from './details.js';
import { byId, el, refill } from './dom.js';
import { Feed } from './feed.js';
import { fillSpan, setUpSpan, showHidden, showLegend, showTags, showWindows } from './filters.js';
import { FlameGraph } from './flame.js';
import { plural } from './format.js';
import { notices, showHeader, whyEmpty } from './header.js';
import { expose } from './hook.js';
import { setUpKeys } from './keys.js';
import { copy, openMenu, setUpMenu } from './menu.js';
import { shortName } from './names.js';
import { linkNames, namesTo, resolve } from './path.js';
import { reshape } from './reshape.js';
import { compile, exactly, matchNames, total } from './search.js';
import { moving, read, windowAndTags, write } from './state.js';
import { FunctionTable } from './table.js';
import { flipTheme, theme } from './theme.js';

let state = read();
let failure = '';
/** What was derived last. `place` is the match the reader stepped to, `chosen` the selected function. */
const view = { profile: null, tree: null, zoom: 0, found: true, hits: null, matches: null, rows: [], place: -1, chosen: -1, answers: 0 };

const api = (format) => `api/profile?${windowAndTags(state)}${format ? `&format=${format}` : ''}`;
const nameId = (node) => view.profile.frames.name[view.tree.frame[node]];
const feed = new Feed(api, () => moving(state), { answer: arrived, failure: (text) => { failure = text; render(); } });
const graph = new FlameGraph(byId('flame'), { point: pointNode, zoom: zoomTo, menu: (node, at) => menuFor(nameId(node), node, at) });
const table = new FunctionTable(byId('table').firstElementChild, {
  point: pointRow, select: choose, zoom: (row) => zoomTo(widestOf(row.id)), menu: (row, at) => menuFor(row.id, widestOf(row.id), at),
  sort: (key) => go({ sort: state.sort === `-${key}` ? key : state.sort === key || key !== 'name' ? `-${key}` : key }, { replace: true }),
});
const widestOf = (id) => widest(view.profile, view.tree, id, view.zoom);

/** Changes the view and its address. */
function go(change, { replace = false, reveal = false } = {}) {
  const asked = api();
  state = { ...state, ...change };
  derive();
  write(state, view.tree && view.found ? linkNames(view.profile, view.tree, view.zoom) : state.path, replace);
  render(reveal);
  if (api() !== asked) feed.load();
}

function arrived(answer) {
  const selected = view.tree && graph.selected > 0 ? namesTo(view.profile, view.tree, graph.selected) : null;
  view.profile = decode(answer);
  view.answers++;
  failure = '';
  derive();
  const again = selected && resolve(view.profile, view.tree, selected, true);
  graph.selected = again?.found ? again.node : -1;
  render(view.answers === 1);
}

/** Tree, zoom, matches and rows of the profile at hand. */
function derive() {
  const { profile } = view;
  if (!profile) return;
  const hidden = hiddenFrames(profile);
  const same = view.tree;
  view.tree = state.hidden.length || state.collapse ? reshape(profile, hidden, state.collapse) : profile.tree;
  if (same !== view.tree) graph.selected = -1;
  // A path from a link or from another shape of the tree is a part of the whole one. Once found, the whole is kept.
  const path = state.whole ? state.path : state.path.filter((name, i, all) =>
    !hidden.names.has(name) && !(state.collapse && name === all[i - 1]));
  const { node, found } = resolve(profile, view.tree, path, state.whole);
  Object.assign(view, { zoom: node, found });
  if (!state.whole && found) state = { ...state, path: namesTo(profile, view.tree, node), whole: true };
  const { regex, error } = compile(state.query, state.matchCase);
  view.error = error;
  view.hits = matchNames(profile.names, regex);
  view.matches = view.hits && total(profile, view.tree, node, view.hits);
  view.rows = functionsOf(profile, view.tree, node).filter((row) => !view.hits || view.hits[row.id]);
}

/** 1 for each frame to leave out; `names` are theirs. */
function hiddenFrames({ frames, names, kinds }) {
  const wanted = new Set(state.hidden);
  const hidden = Uint8Array.from(frames.name, (name, frame) => (wanted.has(names[name]) || wanted.has(`@${KINDS[kinds[frame]]}`) ? 1 : 0));
  hidden.names = new Set(frames.name.filter((_, frame) => hidden[frame]).map((name) => names[name]));
  return hidden;
}

function render(reveal = false) {
  const { profile, tree, zoom, hits, rows } = view;
  showWindows(state, (span) => go(span));
  showLive();
  byId('query').value = state.query;
  for (const format of ['pprof', 'folded']) byId(`get-${format}`).href = api(format);
  press('case', state.matchCase);
  press('collapse', state.collapse);
  byId('root').textContent = state.root === 'top' ? 'Root ↑' : 'Root ↓';
  const shown = state.view === 'auto' ? (innerWidth >= 1100 ? 'both' : 'graph') : state.view;
  byId('main').dataset.view = view.shown = shown;
  for (const button of byId('views').children) button.setAttribute('aria-pressed', String(button.dataset.view === shown));
  showNotices();
  if (!profile) return;
  showHeader(profile);
  showTags(profile.answer.tags ?? {}, state.tags, (tags) => go({ tags }));
  showHidden(state.hidden, (name) => go({ hidden: state.hidden.filter((other) => other !== name) }));
  showLegend(profile, state.hidden, (kind) => hide(kind));
  showCrumbs();
  showFound();
  const empty = !profile.weight;
  for (const id of ['graph', 'table']) byId(id).hidden = empty;
  byId('empty').hidden = !empty;
  if (empty) whyEmpty(profile, state.tags.length).forEach((text, i) => { byId('empty').children[i].textContent = text; });
  graph.show(profile, tree, { zoom, hits, root: state.root, theme: theme() }, reveal);
  table.show(profile, rows, { sort: state.sort, theme: theme(), chosen: view.chosen });
  if (!graph.pointer && !document.querySelector('footer:hover, tbody:hover')) showNode(Math.max(graph.selected, 0) || zoom);
}

function showLive() {
  const on = moving(state) && !feed.paused;
  press('live', on);
  byId('live').classList.toggle('failed', Boolean(failure));
  byId('live').textContent = failure ? 'No answer' : on ? 'Live' : feed.paused ? 'Paused' : 'Fixed';
}

function showNotices() {
  const list = view.profile ? notices(view.profile) : [];
  if (failure) list.unshift(['red', `${failure[0].toUpperCase()}${failure.slice(1)}. ${view.profile ? 'What is shown is the last that came; ' : ''}trying again.`]);
  if (view.profile && !view.found) {
    list.push(['amber', `“${shortName(state.path.at(-1))}” is not in the profile now: its nearest ancestor is shown.`, '', ['Show all', () => zoomTo(0)]]);
  }
  if (view.error) list.push(['amber', `Not a regular expression: ${view.error}`]);
  refill(byId('notices'), list, () => list.map(([level, text, code, action]) => el('div', { class: level }, text,
    code ? el('code', { text: code }) : null, action ? el('button', { type: 'button', 'data-key': text, text: action[0], onclick: action[1] }) : null)));
}

/** The path of the zoom: its first name and its last three. */
function showCrumbs() {
  const nodes = [];
  for (let node = view.zoom; node >= 0; node = view.tree.parent[node]) nodes.unshift(node);
  const shown = nodes.length > 5 ? [nodes[0], -1, ...nodes.slice(-3)] : nodes;
  refill(byId('crumbs'), [view.answers, shown], () => shown.flatMap((node, i) => [
    i ? el('span', { text: '›' }) : null,
    node < 0 ? el('span', { text: ' … ' }) : el('button', {
      type: 'button', 'data-key': i, text: node ? shortName(view.profile.names[nameId(node)]) : 'all', onclick: () => zoomTo(node),
      'aria-current': node === view.zoom ? 'location' : null,
    }),
  ]).filter(Boolean));
}

function showFound() {
  const { matches, profile, rows, place } = view;
  const at = matches && place >= 0 ? `${place + 1} of ` : '';
  byId('found').textContent = !matches ? '' : matches.nodes.length
    ? `${at}${plural(matches.nodes.length, 'place')} · ${plural(rows.length, 'function')} · ${figures(profile, matches.value)}` : 'nothing matches';
}

function zoomTo(node) {
  if (node >= 0) go({ path: namesTo(view.profile, view.tree, node), whole: true }, { reveal: true });
}

/** Hides a function, or a kind of package (`@std`), or shows it again. */
function hide(name) {
  const hidden = state.hidden.includes(name) ? state.hidden.filter((other) => other !== name) : [...state.hidden, name];
  go({ hidden, whole: false });
}

function search(query, more = {}) {
  view.place = -1;
  go({ query, ...more }, { replace: true });
}

/** To the next match (or with -1 the one before). */
function step(by) {
  const nodes = view.matches?.nodes ?? [];
  if (!nodes.length) return;
  view.place = (view.place < 0 && by < 0 ? nodes.length - 1 : view.place + by + nodes.length) % nodes.length;
  graph.select(nodes[view.place]);
  pointNode(nodes[view.place]);
  showFound();
}

/** Lights a node's function and says all about it at the foot; with -1, that stays. */
function pointNode(node) {
  if (!view.tree) return;
  light(node > 0 ? nameId(node) : view.chosen);
  if (node >= 0) showNode(node);
}

function pointRow(row) {
  light(row ? row.id : view.chosen);
  if (row) showDetails(view.profile, row.frame, { ...row, within: view.tree.total[view.zoom], what: 'in all places' });
}

function light(id) {
  graph.light(id);
  table.light(id);
}

function showNode(node) {
  const { total, self, frame } = view.tree;
  showDetails(view.profile, node ? frame[node] : -1, { total: total[node], self: self[node], within: total[view.zoom] });
}

/** Selects a function: its row, and its widest box. */
function choose(row) {
  view.chosen = row.id;
  table.choose(row.id);
  pointRow(row);
  const node = widestOf(row.id);
  if (node >= 0 && view.shown !== 'table') graph.reveal(node, false);
}

function menuFor(id, node, at) {
  const name = view.profile.names[id];
  openMenu(at, shortName(name), [
    ['Zoom', 'Enter', () => zoomTo(node)],
    ['Hide function', '', () => hide(name)],
    ['Search this', '', () => search(exactly(name), { matchCase: true })],
    ['Copy name', '', () => copy(name)],
    ['Copy link to this view', '', () => copy(location.href)],
  ]);
}

function press(id, on) {
  byId(id).setAttribute('aria-pressed', String(on));
}

/** Arrow keys in the graph; Enter zooms to where they led. */
function walk(key) {
  if (!view.tree || view.shown === 'table') return;
  const node = graph.neighbour(key);
  graph.select(node);
  pointNode(node);
  byId('say').textContent = `${node ? view.profile.names[nameId(node)] : 'all'}: ${figures(view.profile, view.tree.total[node])}`;
}

function escape() {
  const open = document.querySelector('details[open]');
  if (open) open.open = false;
  else if (state.query) search('');
  else if (graph.selected >= 0 || view.chosen >= 0) { view.chosen = -1; graph.select(-1); table.choose(-1); pointNode(-1); }
  document.activeElement.blur();
}

function pause() {
  if (!moving(state)) go({ from: '-300', to: '' });
  else { feed.pause(!feed.paused); showLive(); }
}

function setUp() {
  const flipRoot = () => go({ root: state.root === 'top' ? 'bottom' : 'top' });
  const collapse = () => go({ collapse: !state.collapse, whole: false });
  const darken = () => { flipTheme(); render(); };
  const find = () => { byId('query').focus(); byId('query').select(); };
  const help = () => byId('help').showModal();
  const shapes = ['graph', 'table', 'both'];
  setUpKeys([
    [['/'], 'search (also Ctrl+F)', find], [['n', 'N'], 'next, previous match', (key) => step(key === 'n' ? 1 : -1)],
    [['ArrowUp', 'ArrowDown', 'ArrowLeft', 'ArrowRight'], 'move over the boxes, or the rows', walk],
    [['Enter'], 'zoom to the box or row', () => zoomTo(graph.selected)], [['0'], 'reset the zoom', () => zoomTo(0)],
    [['Escape'], 'close, clear the search, clear the selection', escape],
    [['1', '2', '3'], 'graph, table, both', (key) => go({ view: shapes[key - 1] })],
    [['i'], 'root at the bottom or at the top', flipRoot], [['r'], 'collapse recursion', collapse],
    [['d'], 'light or dark', darken], [[' '], 'pause or resume', pause], [['?'], 'this help', help],
  ]);
  setUpMenu();
  setUpSpan((span) => go(span), () => { byId('span').open = false; });
  const click = (id, run) => byId(id).addEventListener('click', run);
  click('live', pause);
  click('theme', darken);
  click('ask', help);
  click('root', flipRoot);
  click('collapse', collapse);
  click('case', () => search(state.query, { matchCase: !state.matchCase }));
  click('views', (event) => { if (event.target.dataset.view) go({ view: event.target.dataset.view }); });
  byId('query').addEventListener('input', (event) => search(event.target.value));
  byId('query').addEventListener('keydown', (event) => { if (event.key === 'Enter') step(event.shiftKey ? -1 : 1); });
  byId('span').addEventListener('toggle', () => { if (view.profile && byId('span').open) fillSpan(view.profile.answer.from, view.profile.answer.to); });
  document.addEventListener('pointerdown', (event) => {
    for (const open of document.querySelectorAll('details[open]')) if (!open.contains(event.target)) open.open = false;
  });
  addEventListener('popstate', () => {
    const asked = api();
    state = read();
    derive();
    render(true);
    if (api() !== asked) feed.load();
  });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => render());
  addEventListener('resize', () => render());
  expose(() => state, view, graph, feed);
}

setUp();
render();
feed.load();
