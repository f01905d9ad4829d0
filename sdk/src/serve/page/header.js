// The head of the page: whose profile this is, how much of it there is, and how far it can be trusted.
//
// Loss is shown as it is counted, since the start; shares are never rescaled for it. Amber from 1 %, red from 5 %.

import { byId, el, refill } from './dom.js';
import { clock, cores, count, error, percent, plural, time } from './format.js';

const AMBER = 0.01;
const RED = 0.05;
const FEW = 100;       // a profile of fewer samples is rough

const sum = (counts) => Object.values(counts ?? {}).reduce((a, b) => a + b, 0);
const words = (name) => name.replaceAll('_', ' ');
const level = (part, whole) => (!whole || part / whole < AMBER ? 'good' : part / whole < RED ? 'amber' : 'red');

export function showHeader(profile) {
  const { answer, weight, perSample } = profile;
  const { target, kind, stats } = answer;
  document.title = `${target.service} · ${kind.type} profile`;
  refill(byId('service'), target, () => [el('b', { text: target.service }), el('small', { text: `pid ${target.pid}` })]);
  const span = answer.first === null || answer.first === undefined ? '–' : `${clock(answer.first)} – ${clock(answer.last)}`;
  const tiles = [
    ['CPU time', perSample ? time(weight * perSample) : count(weight), perSample ? cores(weight * perSample, answer.duration_ms) : ''],
    ['Samples', count(weight), answer.stacks && weight < answer.stacks ? `of ${count(answer.stacks)}` : ''],
    ['Window', span, ''],
    ['Sampling', `${count(stats.rate_hz || kind.rate_hz)} Hz`, stats.engine?.name || 'no engine'],
  ];
  refill(byId('tiles'), tiles, () => tiles.map(([label, value, note]) => tile(label, value, note)));
  showQuality(stats);
}

function tile(label, value, note, state) {
  return el('div', { class: `tile ${state ?? ''}` }, el('dt', { text: label }), el('dd', {}, value, note ? el('small', { text: ` ${note}` }) : null));
}

/** One tile a figure; a share in percent where it is a part of all, and the colour said in words too. */
function showQuality(stats) {
  const { taken, exported, pending, degraded = {}, symbols = {} } = stats;
  const lost = sum(stats.lost);
  const addresses = (symbols.resolved ?? 0) + (symbols.unresolved ?? 0);
  const part = (label, n, whole) => [label, count(n), n && whole ? percent(n / whole) : '', level(n, whole)];
  const figures = [
    ['Taken', count(taken), '', ''], ['Exported', count(exported), '', ''], ['Pending', count(pending), '', ''],
    part('Lost', lost, taken), part('Truncated', degraded.truncated ?? 0, taken), part('Unresolved', symbols.unresolved ?? 0, addresses),
  ];
  const worst = ['red', 'amber', 'good'].find((state) => figures.some((figure) => figure[3] === state));
  const verdict = { good: 'complete', amber: 'small gaps', red: 'incomplete' }[worst];
  refill(byId('quality'), figures, () => figures.map((figure) => tile(...figure)));
  refill(byId('verdict'), worst, () => [el('span', { class: `dot ${worst}` }), `Quality: ${verdict}`]);
  refill(byId('ledger'), stats, () => ledger(stats, lost));
}

/** Everything that is known about loss, in full. */
function ledger(stats, lost) {
  const { taken, exported, pending, degraded = {}, engine = {}, destinations = [], symbols = {} } = stats;
  const list = (counts) => Object.entries(counts ?? {}).filter(([, n]) => n).map(([name, n]) => [words(name), `${count(n)} · ${percent(n / Math.max(taken, 1))}`]);
  const group = (title, lines, none) => [el('h3', { text: title }), lines.length
    ? el('dl', {}, ...lines.flatMap(([name, value]) => [el('dt', { text: name }), el('dd', { text: value })])) : el('p', { text: none })];
  return [
    el('p', { text: `Since the start: ${count(taken)} taken = ${count(exported)} exported + ${count(pending)} pending + ${count(lost)} lost.` }),
    ...group('Lost, by cause', list(stats.lost), 'Nothing.'),
    ...group('Less than perfect', list(degraded), 'Nothing.'),
    ...group('Destinations', destinations.map(({ name, delivered, queued, dropped }) =>
      [name, `${count(delivered)} delivered, ${count(queued)} queued, ${count(typeof dropped === 'object' ? sum(dropped) : dropped)} dropped`]), 'None.'),
    ...group('Engine', [[engine.name || 'none', 'in use'], ...(engine.refused ?? []).map(({ name, why }) => [name, `refused: ${why}`])], ''),
    ...group('Symbols', [['resolved', count(symbols.resolved ?? 0)], ['unresolved', count(symbols.unresolved ?? 0)]], ''),
  ];
}

/** What the reader should know before believing a share: [level, text, code]. */
export function notices(profile) {
  const { answer, weight, evidence } = profile;
  const list = [];
  if (weight > 0 && weight < FEW) {
    list.push(['amber', `Only ${plural(weight, 'sample')}: a share of 50 % is known to ± ${error(0.5, evidence)} at best. Wait, or widen the window.`]);
  }
  if (answer.debug_info === false && weight > 0) {
    list.push(['info', 'Inlined frames and line numbers are absent: the program carries no line tables. Add to its [profile.release]:', 'debug = "line-tables-only"']);
  }
  if (answer.trimmed) list.push(['info', `${plural(answer.trimmed, 'small node')} left out, to keep the page fast; their value stays with their callers.`]);
  if (answer.tags_cut) list.push(['info', 'There are more tag values than can be listed.']);
  if (answer.stats.sampling === false && weight > 0) list.push(['amber', 'Sampling is paused: nothing new is recorded.']);
  return list;
}

/** Why there is nothing to see: a title and what to do. */
export function whyEmpty({ answer }, filtered) {
  const { stats } = answer;
  const refused = (stats.engine?.refused ?? []).map(({ name, why }) => `${name}: ${why}`).join('; ');
  if (!stats.engine?.name && refused) return ['No engine could be started', `${refused}.`];
  if (stats.sampling === false) return ['Sampling is off', 'Resume the profiler, or start the service with PROFILER_ENABLED=1.'];
  if (filtered && answer.stacks) return ['No sample carries these tags', `${plural(answer.stacks, 'stack')} were taken in this window under other tags. Clear a filter to see them.`];
  if (stats.taken && sum(stats.lost) === stats.taken) return ['Every stack was lost', 'The causes are listed under Quality.'];
  if (stats.taken && stats.taken === stats.pending) return ['The first samples are on their way', 'They appear once they are symbolized, within seconds.'];
  if (stats.taken) return ['No samples in this window', 'The service used no CPU then, or what it used is no longer kept. Choose another window.'];
  return ['No samples yet', `The service has used no CPU worth a sample (one every ${1000 / (stats.rate_hz || 100)} ms of CPU time). Send it some work.`];
}
