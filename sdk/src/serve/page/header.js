// The head of the page: whose profile this is, how much of it there is, how far it can be trusted. Loss is shown as
// counted since the start; shares are never rescaled for it.

import { byId, el, refill } from './dom.js';
import { bytes, clock, count, error, percent, plural } from './format.js';
import { accountOf, isHeap, isState, titleOf } from './types.js';

const AMBER = 0.01;
const RED = 0.05;
const FEW = 100;       // a profile of fewer samples is rough

const sum = (counts) => (typeof counts === 'number' ? counts : Object.values(counts).reduce((a, b) => a + b, 0));
const level = (n, whole) => (n < AMBER * whole || !n ? 'good' : n < RED * whole ? 'amber' : 'red');
const part = (title, n, whole) => [title, count(n), n ? percent(n / Math.max(n, whole)) : '', level(n, whole)];
const tile = ([title, value, note = '', state = '']) =>
  el('div', { class: state }, el('dt', { text: title }), el('dd', {}, value, el('small', { text: ` ${note}` })));
const VERDICTS = { red: 'Incomplete', amber: 'Small gaps', good: 'Complete' };

export function showHeader(profile, { service, pid }) {
  const { answer: { target, targets, kind, stats } } = profile;
  const one = targets.length < 2 && !service && !pid ? target : null;
  const name = one?.service ?? (service || (pid ? `pid ${pid}` : targets.length ? plural(targets.length, 'process', 'es') : 'no process'));
  document.title = `${name} · ${titleOf(kind.type)} profile`;
  refill(byId('service'), [name, one], () => (one ? [name, el('small', { text: `pid ${one.pid}` })] : []));
  const ofSdk = stats.heap && isHeap(kind.type);
  const figures = profile.timed ? ofStacks(stats) : ofSdk ? ofBlocks(stats) : ofProfiles(stats, accountOf(kind.type));
  const tiles = profile.timed ? ofTime(profile) : ofOthers(profile);
  const worst = Object.keys(VERDICTS).find((state) => figures.some((figure) => figure[3] === state));
  refill(byId('tiles'), tiles, () => tiles.map(tile));
  refill(byId('figures'), figures, () => figures.map(tile));
  refill(byId('verdict'), worst, () => [el('i', { class: `dot ${worst}` }), VERDICTS[worst]]);
  refill(byId('ledger'), [ofSdk, stats], () => (ofSdk ? ledgerOfHeap(stats.heap) : ledger(stats)));
}

function ofStacks({ taken, exported, pending, lost, degraded, symbols: { resolved, unresolved } }) {
  return [
    ['Taken', count(taken)], ['Exported', count(exported)], ['Pending', count(pending)],
    part('Lost', sum(lost), taken), part('Truncated', degraded.truncated, taken),
    part('Unresolved', unresolved, resolved + unresolved),
  ];
}

function ofBlocks({ heap: { sampled, live, lost, without_stack: bare, dumps }, symbols: { resolved, unresolved } }) {
  const known = part('Unresolved', unresolved, resolved + unresolved);
  if (dumps) return [['Dumps', count(dumps.read)], ['Live', count(live)], part('Failed', dumps.failed, dumps.read + dumps.failed), known];
  return [
    ['Sampled', count(sampled)], ['Live', count(live)], part('Lost', sum(lost), sampled),
    part('Without stack', bare, sampled), known,
  ];
}

/** Of profiles that are read, not sampled, or by others: what became of them. */
function ofProfiles({ kinds }, name) {
  const { offered, exported, pending, lost } = kinds[name] ?? { offered: 0, exported: 0, pending: 0, lost: {} };
  return [['Profiles', count(offered)], ['Exported', count(exported)], ['Pending', count(pending)], part('Lost', sum(lost), offered)];
}

const span = ({ first, last }) => (first ? `${clock(first)} – ${clock(last)}` : '–');

function ofTime({ answer, weight, worth, rate }) {
  const { stats, stacks } = answer;
  return [
    ['CPU time', worth(weight), rate(weight)],
    ['Samples', count(weight), weight < stacks ? `of ${count(stacks)}` : ''],
    ['Data', span(answer)],
    ['Sampling', `${count(stats.rate_hz)} Hz`, stats.engine.name || 'no engine'],
  ];
}

function ofOthers({ answer, weight, worth, rate, spread }) {
  const { kind, growth, heap, last, stacks } = answer;
  const of = (name) => (Number.isFinite(heap[name]) ? ` of ${name} ${bytes(heap[name])}` : '');
  return [
    [growth ? 'Grew' : titleOf(kind.type), worth(weight), [spread(weight), rate(weight)].filter(Boolean).join(', ')],
    growth && ['Shrank', worth(growth.shrank)],
    kind.type.endsWith('_delay') && ['Waits', count(stacks)],
    isHeap(kind.type) && ['Sampled blocks', `≈ ${count(stacks)}`, kind.period ? `one in ${bytes(kind.period)}` : ''],
    isState(kind.type) && !growth ? ['State', last ? clock(last) : '–'] : ['Data', span(answer)],
    heap && ['Sampled live heap', bytes(heap.live), `${of('allocated')}${of('resident')}`.trim()],
  ].filter(Boolean);
}

const list = ([title, lines]) => [el('h3', { text: title }), lines.length
  ? el('dl', {}, ...lines.flatMap(([name, text]) => [el('dt', { text: name }), el('dd', { text })])) : 'none'];

/** All that is known about loss. */
function ledger(stats) {
  const { taken, exported, pending, lost, degraded, engine, destinations } = stats;
  const shares = (counts) => Object.entries(counts).filter(([, n]) => n)
    .map(([name, n]) => [name.replaceAll('_', ' '), `${count(n)} · ${percent(n / taken)}`]);
  const fate = ({ name, delivered, queued, dropped, last_error: said }) => [name, `${count(delivered)} delivered, ${
    count(queued)} queued, ${count(sum(dropped))} dropped${said ? `; last error: ${said}` : ''}`];
  const groups = {
    'Lost, by cause': shares(lost), 'Less than perfect': shares(degraded), Destinations: destinations.map(fate),
    Engine: [
      ...Object.entries(engine.threads).map(([name, n]) => [name, n ? plural(n, 'thread') : 'all other threads']),
      ...engine.refused.map(({ name, why }) => [name, `refused: ${why}`]), ...engine.notes.map((note) => ['note', note]),
    ],
  };
  for (const name of stats.sections ?? []) {
    groups[name.replaceAll('_', ' ')] = Object.entries(stats[name]).map(([key, value]) => [key.replaceAll('_', ' '), String(value)]);
  }
  return [
    el('p', { text: `Stacks since the start${stats.processes ? ', of all processes' : ''}: ${count(taken)} taken = ${count(exported)} exported + ${
      count(pending)} pending + ${count(sum(lost))} lost.` }),
    ...Object.entries(groups).flatMap(list),
  ];
}

/** The same of the heap, and what the allocator says. */
function ledgerOfHeap({ sampled, recorded, freed, live, lost, allocator, dumps, notes }) {
  const groups = {
    'Lost, by cause': Object.entries(lost).filter(([, n]) => n).map(([name, n]) => [name.replaceAll('_', ' '), count(n)]),
    Allocator: Object.entries(allocator ?? {}).map(([name, n]) => [name, bytes(n)]),
    Notes: notes.map((note) => ['note', note]),
  };
  if (dumps) {
    const text = `jemalloc's own profile, dumped ${count(dumps.read)} times: ${count(live)} sampled blocks live, without tags and spans.`;
    return [el('p', { text }), ...Object.entries(groups).flatMap(list)];
  }
  return [
    el('p', { text: `Sampled blocks since the start: ${count(sampled)} = ${count(recorded)} recorded + ${
      count(sum(lost))} lost; ${count(recorded)} recorded = ${count(freed)} freed + ${count(live)} live.` }),
    ...Object.entries(groups).flatMap(list),
  ];
}

/** What to know before believing a share: [level, text, code]. */
export function notices({ answer: { debug_info: lines, trimmed, tags_cut: cut, stats, kind }, weight, evidence, timed }) {
  const heap = isHeap(kind.type) && stats.heap;
  return [
    evidence < FEW && ['amber', `Only ${plural(Math.round(evidence), 'sample')}: a share of 50 % is known to ± ${
      error(0.5, evidence)} at best. Wait, or choose a longer window.`],
    !(timed ? stats.sampling : heap ? heap.on : true) && ['amber', 'Sampling is off: nothing new is recorded.'],
    heap?.dumps && ['', 'This jemalloc has no hooks of samples: blocks of the heap have no tags and no spans.'],
    lines === false && ['', 'Inlined frames and line numbers are absent. In the [profile.release] of the program:',
      'debug = "line-tables-only"'],
    trimmed && ['', `${plural(trimmed, 'small node')} are shown as (trimmed), to keep the page fast.`],
    cut && ['', 'More values of tags were seen than are listed.'],
  ].filter((notice) => notice && weight);
}

/** Why there is nothing to see, and what to do. */
export function whyEmpty({ answer, timed }, state) {
  const { stats, stacks } = answer;
  const filtered = state.tag.length;
  if (!timed) return stats.heap && isHeap(answer.kind.type) ? whyNoHeap(answer, filtered) : whyNothing(answer, state);
  const refused = stats.engine.refused.map(({ name, why }) => `${name}: ${why}`).join('; ');
  if (!stats.engine.name && refused) return ['No engine could be started', refused];
  if (!stats.sampling) return ['Sampling is off', 'Resume the profiler; PROFILER_ENABLED must not be 0.'];
  if (filtered && stacks) return ['No sample has these tags', `${plural(stacks, 'stack')} in this window have others.`];
  if (stats.processes?.known && !answer.targets.length) {
    return ['No process is profiled', `Of ${plural(stats.processes.known, 'process', 'es')} none is: see profiler-sidecar doctor.`];
  }
  if (!stats.taken) {
    return ['No samples yet', `One is taken every ${1000 / stats.rate_hz} ms of CPU time; the service has used less.`];
  }
  if (stats.taken === sum(stats.lost)) return ['Every stack was lost', 'Causes are listed at the top right.'];
  if (stats.taken === stats.pending) return ['The first samples are on their way', 'They appear within seconds.'];
  return ['No samples in this window', 'The service used no CPU then, or they are no longer kept. Choose another window.'];
}

function whyNothing({ growth, stacks, first, stats, kind }, { tag, service, pid }) {
  const [why] = statesOf(stats, accountOf(kind.type), service, pid);
  if (why && !stacks) return ['Nothing here', why];
  if (growth) return first ? ['Nothing grew', 'Every place holds as much as before, or less.'] : ['Growth needs two states', 'Wait, or choose a longer window.'];
  if (tag.length && stacks) return ['No sample has these tags', 'Those in this window have others.'];
  return ['Nothing in this window', 'These profiles are taken more seldom than samples: wait, or choose a longer window.'];
}

/** Why the runtimes of Go programs keep nothing of a kind: off, left out by the linker, nobody waited yet. Of those that are looked at, if all of them say so. */
function statesOf(stats, kind, service, pid) {
  const programs = Object.entries(stats).filter(([name]) => name.startsWith('go_')).map(([, figures]) => figures)
    .filter((of) => (!service || of['service.name'] === service) && (!pid || of['process.pid'] === Number(pid)));
  const whys = programs.map((of) => of[kind] ?? '').filter((why) => /is off|not in the program|nobody has/.test(why));
  return whys.length === programs.length ? whys : [];
}

function whyNoHeap({ stats: { heap }, growth, stacks, first, last, heap: known }, filtered) {
  if (growth?.shrank) return ['Nothing grew', `${bytes(growth.shrank)} less is in use.`];
  if (filtered && stacks) return ['No sample has these tags', 'Those in this window have others.'];
  if (growth && first !== last) return ['Nothing grew', 'Every place holds as much as before.'];
  if (growth && known) return ['Growth needs two states', 'One is taken in each interval. Wait, or choose a longer window.'];
  if (known) return ['Nothing sampled here', `One allocation in ${bytes(heap.interval_bytes)} is sampled, on average.`];
  return heap.on ? ['No state of the heap yet', 'The first is on its way, or this window ends before the oldest that is kept.']
    : ['The heap is not sampled', heap.notes.join('; ')];
}
