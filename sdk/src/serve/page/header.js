// The head of the page: whose profile this is, how much of it there is, how far it can be trusted. Loss is shown as
// counted since the start; shares are never rescaled for it.

import { byId, el, refill } from './dom.js';
import { clock, count, error, percent, plural } from './format.js';

const AMBER = 0.01;
const RED = 0.05;
const FEW = 100;       // a profile of fewer samples is rough

const sum = (counts) => (typeof counts === 'number' ? counts : Object.values(counts).reduce((a, b) => a + b, 0));
const level = (n, whole) => (n < AMBER * whole || !n ? 'good' : n < RED * whole ? 'amber' : 'red');
const part = (title, n, whole) => [title, count(n), n ? percent(n / Math.max(n, whole)) : '', level(n, whole)];
const tile = ([title, value, note = '', state = '']) =>
  el('div', { class: state }, el('dt', { text: title }), el('dd', {}, value, el('small', { text: ` ${note}` })));
const VERDICTS = { red: 'Incomplete', amber: 'Small gaps', good: 'Complete' };

export function showHeader(profile) {
  const { answer: { target, kind, stats, first, last, stacks }, weight } = profile;
  const { taken, exported, pending, lost, degraded, symbols: { resolved, unresolved } } = stats;
  document.title = `${target?.service ?? 'no process'} · ${kind.type} profile`;
  refill(byId('service'), target, () => [target?.service, el('small', { text: `pid ${target?.pid}` })]);
  const figures = [
    ['Taken', count(taken)], ['Exported', count(exported)], ['Pending', count(pending)],
    part('Lost', sum(lost), taken), part('Truncated', degraded.truncated, taken),
    part('Unresolved', unresolved, resolved + unresolved),
  ];
  const tiles = [
    ['CPU time', profile.worth(weight), profile.cores(weight)],
    ['Samples', count(weight), weight < stacks ? `of ${count(stacks)}` : ''],
    ['Data', first ? `${clock(first)} – ${clock(last)}` : '–'],
    ['Sampling', `${count(stats.rate_hz)} Hz`, stats.engine.name || 'no engine'],
  ];
  const worst = Object.keys(VERDICTS).find((state) => figures.some((figure) => figure[3] === state));
  refill(byId('tiles'), tiles, () => tiles.map(tile));
  refill(byId('figures'), figures, () => figures.map(tile));
  refill(byId('verdict'), worst, () => [el('i', { class: `dot ${worst}` }), VERDICTS[worst]]);
  refill(byId('ledger'), stats, () => ledger(stats));
}

/** All that is known about loss. */
function ledger({ taken, exported, pending, lost, degraded, engine, destinations }) {
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
  return [
    el('p', { text: `Stacks since the start: ${count(taken)} taken = ${count(exported)} exported + ${
      count(pending)} pending + ${count(sum(lost))} lost.` }),
    ...Object.entries(groups).flatMap(([title, lines]) => [el('h3', { text: title }), lines.length
      ? el('dl', {}, ...lines.flatMap(([name, text]) => [el('dt', { text: name }), el('dd', { text })])) : 'none']),
  ];
}

/** What to know before believing a share: [level, text, code]. */
export function notices({ answer: { debug_info: lines, trimmed, tags_cut: cut, stats }, weight, evidence }) {
  return [
    weight < FEW && ['amber', `Only ${plural(weight, 'sample')}: a share of 50 % is known to ± ${
      error(0.5, evidence)} at best. Wait, or choose a longer window.`],
    !stats.sampling && ['amber', 'Sampling is off: nothing new is recorded.'],
    lines === false && ['', 'Inlined frames and line numbers are absent. In the [profile.release] of the program:',
      'debug = "line-tables-only"'],
    trimmed && ['', `${plural(trimmed, 'small node')} are shown as (trimmed), to keep the page fast.`],
    cut && ['', 'More values of tags were seen than are listed.'],
  ].filter((notice) => notice && weight);
}

/** Why there is nothing to see, and what to do. */
export function whyEmpty({ answer: { stats, stacks } }, filtered) {
  const refused = stats.engine.refused.map(({ name, why }) => `${name}: ${why}`).join('; ');
  if (!stats.engine.name && refused) return ['No engine could be started', refused];
  if (!stats.sampling) return ['Sampling is off', 'Resume the profiler; PROFILER_ENABLED must not be 0.'];
  if (filtered && stacks) return ['No sample has these tags', `${plural(stacks, 'stack')} in this window have others.`];
  if (!stats.taken) {
    return ['No samples yet', `One is taken every ${1000 / stats.rate_hz} ms of CPU time; the service has used less.`];
  }
  if (stats.taken === sum(stats.lost)) return ['Every stack was lost', 'Causes are listed at the top right.'];
  if (stats.taken === stats.pending) return ['The first samples are on their way', 'They appear within seconds.'];
  return ['No samples in this window', 'The service used no CPU then, or they are no longer kept. Choose another window.'];
}
