// The head of the page: whose profile this is, how much of it there is, how far it can be trusted.
//
// Loss is shown as counted since the start; shares are never rescaled for it.

import { byId, el, refill } from './dom.js';
import { clock, count, error, percent, plural } from './format.js';

const AMBER = 0.01;
const RED = 0.05;
const FEW = 100;       // a profile of fewer samples is rough

const sum = (counts) => Object.values(counts).reduce((a, b) => a + b, 0);
const tile = ([title, value, note = '', level = '']) => el('div', { class: level }, el('dt', { text: title }), el('dd', {}, value, el('small', { text: ` ${note}` })));

export function showHeader(profile) {
  const { answer: { kind, stats, first, last, stacks }, weight } = profile;
  const target = profile.answer.target ?? { service: 'no process', pid: '–' };
  const { taken, exported, pending, lost, degraded, symbols: { resolved, unresolved } } = stats;
  document.title = `${target.service} · ${kind.type} profile`;
  refill(byId('service'), target, () => [target.service, el('small', { text: `pid ${target.pid}` })]);
  const tiles = [
    ['CPU time', profile.worth(weight), profile.cores(weight)], ['Samples', count(weight), weight < stacks ? `of ${count(stacks)}` : ''],
    ['Data', first ? `${clock(first)} – ${clock(last)}` : '–'], ['Sampling', `${count(stats.rate_hz)} Hz`, stats.engine.name || 'no engine'],
  ];
  refill(byId('tiles'), tiles, () => tiles.map(tile));
  const part = (title, n, whole) => [title, count(n), n ? percent(n / Math.max(n, whole)) : '', n < AMBER * whole || !n ? 'good' : n < RED * whole ? 'amber' : 'red'];
  const figures = [
    ['Taken', count(taken)], ['Exported', count(exported)], ['Pending', count(pending)],
    part('Lost', sum(lost), taken), part('Truncated', degraded.truncated, taken), part('Unresolved', unresolved, resolved + unresolved),
  ];
  const worst = ['red', 'amber', 'good'].find((level) => figures.some((figure) => figure[3] === level));
  refill(byId('figures'), figures, () => figures.map(tile));
  refill(byId('verdict'), worst, () => [el('i', { class: `dot ${worst}` }), { good: 'Complete', amber: 'Small gaps', red: 'Incomplete' }[worst]]);
  refill(byId('ledger'), stats, () => ledger(stats));
}

/** All that is known about loss. */
function ledger({ taken, exported, pending, lost, degraded, engine, destinations, symbols }) {
  const shares = (counts) => Object.entries(counts).filter(([, n]) => n).map(([name, n]) => [name.replaceAll('_', ' '), `${count(n)} · ${percent(n / taken)}`]);
  const groups = {
    'Lost, by cause': shares(lost), 'Less than perfect': shares(degraded),
    Destinations: destinations.map(({ name, delivered, queued, dropped, last_error: said }) =>
      [name, `${count(delivered)} delivered, ${count(queued)} queued, ${count(typeof dropped === 'number' ? dropped : sum(dropped))} dropped${said ? `; last error: ${said}` : ''}`]),
    Engine: [[engine.name || 'none', 'in use'], ...engine.refused.map(({ name, why }) => [name, `refused: ${why}`])],
    Addresses: [['with a name', count(symbols.resolved)], ['without', count(symbols.unresolved)]],
  };
  const line = ([name, value]) => [el('dt', { text: name }), el('dd', { text: value })];
  return [
    el('p', { text: `Stacks since the start: ${count(taken)} taken = ${count(exported)} exported + ${count(pending)} pending + ${count(sum(lost))} lost.` }),
    ...Object.entries(groups).flatMap(([title, lines]) => [el('h3', { text: title }), lines.length ? el('dl', {}, ...lines.flatMap(line)) : 'none']),
  ];
}

/** What to know before believing a share: [level, text, code]. */
export function notices({ answer: { debug_info: lines, trimmed, tags_cut: cut, stats }, weight, evidence }) {
  return [
    weight < FEW && ['amber', `Only ${plural(weight, 'sample')}: a share of 50 % is known to ± ${error(0.5, evidence)} at best. Wait, or choose a longer window.`],
    !stats.sampling && ['amber', 'Sampling is off: nothing new is recorded.'],
    lines === false && ['', 'Inlined frames and line numbers are absent, for the program has no line tables. In its [profile.release]:', 'debug = "line-tables-only"'],
    trimmed && ['', `${plural(trimmed, 'small node')} are shown as (trimmed), to keep the page fast.`],
    cut && ['', 'More tag values were seen than are listed.'],
  ].filter((notice) => notice && weight);
}

/** Why there is nothing to see, and what to do. */
export function whyEmpty({ answer: { stats, stacks } }, filtered) {
  const refused = stats.engine.refused.map(({ name, why }) => `${name}: ${why}`).join('; ');
  if (!stats.engine.name && refused) return ['No engine could be started', refused];
  if (!stats.sampling) return ['Sampling is off', 'Resume the profiler; PROFILER_ENABLED must not be 0.'];
  if (filtered && stacks) return ['No sample has these tags', `${plural(stacks, 'stack')} in this window have others. Clear a tag to see them.`];
  if (stats.taken && stats.taken === sum(stats.lost)) return ['Every stack was lost', 'Causes are listed at the top right.'];
  if (stats.taken && stats.taken === stats.pending) return ['The first samples are on their way', 'They appear within seconds.'];
  if (stats.taken) return ['No samples in this window', 'The service used no CPU then, or they are no longer kept. Choose another window.'];
  return ['No samples yet', `One is taken every ${1000 / stats.rate_hz} ms of CPU time, and the service has used less. Send it some work.`];
}
