// The profile as the server sends it, made ready for the views.
//
// In: columns in preorder (depth, frame, self). Out: a tree of typed arrays with parent, start, total and the end of each
// subtree. Loops only: a stack may be thousands of frames deep.

import { kindOf } from './colours.js';
import { bytes, count, digits, error, percent, plural, time } from './format.js';

const FEW = 10;      // what fewer samples stand behind is grey

/** The profile of one answer of `/api/profile`. Weights and values are in samples; of all but CPU time, in the unit of its kind. */
export function decode(answer) {
  const { packages, files, frames, nodes, kind, samples: weight, sum_squares: squares, duration_ms: duration } = answer;
  // Characters that are not seen, or that turn what follows around, have no place in a name.
  const names = answer.names.map((name) => name.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, '\uFFFD'));
  // The samples that an error rests on: with weights, (Σw)²/Σw². Of blocks that were sampled for sure, no end of them.
  const evidence = weight && squares !== undefined ? weight ** 2 / squares : weight;
  const share = (n) => (weight ? n / weight : 0);
  const worth = { nanoseconds: (n) => time(n * kind.period), bytes }[kind.unit] ?? count;
  const timed = kind.type === 'cpu';
  const rate = (n) => (timed ? `${digits((n * kind.period) / duration / 1e6)} cores` : `${worth((1000 * n) / duration)}/s`);
  // Standard error of the value itself: how much is in use is an estimate, how much CPU time was used is not.
  const spread = (n) => (evidence < Infinity ? `± ${worth(Math.sqrt((n * weight) / evidence) || 0)}` : '');
  const kinds = frames.kind.map((sort, frame) => kindOf(sort, packages[frames.package[frame]]));
  const held = {};     // the own value of each kind's frames
  nodes.frame.forEach((frame, i) => { if (i) held[kinds[frame]] = (held[kinds[frame]] ?? 0) + nodes.self[i]; });
  return {
    answer, names, kinds, held, files, frames, weight, evidence, share, worth, timed,
    packages: frames.package.map((id) => packages[id]),
    ids: new Map(names.map((name, id) => [name, id])),
    tree: grow(nodes.depth, nodes.frame, nodes.self),
    /** CPU time, or memory, per wall time; of what is in use at a moment there is none. */
    rate: (n) => (duration ? rate(n) : ''),
    /** Whether so little is known of a value that it may be chance. */
    isFew: (n) => share(n) * evidence < FEW,
    spread,
    /** `412 ms · 5.0 % ± 0.7 · 41 samples`; of the heap, `3.20 MiB ± 0.41 MiB · 40.0 % ± 1.2`. */
    figures: (n) => [
      timed ? worth(n) : `${worth === count ? plural(n, kind.unit.slice(0, -1)) : worth(n)} ${spread(n)}`,
      `${percent(share(n))} ± ${error(share(n), evidence)}`, timed && plural(n, 'sample'),
    ].filter(Boolean).join(' · '),
  };
}

/** A tree from preorder columns. */
export function grow(depth, frame, self) {
  const n = depth.length;
  const tree = {
    count: n, depth: Int32Array.from(depth), frame: Int32Array.from(frame),
    self: Float64Array.from(self), total: Float64Array.from(self), start: new Float64Array(n),
    parent: new Int32Array(n), end: new Int32Array(n),
  };
  const { parent, start, total, end } = tree;
  const open = [-1];     // the latest node of each depth, one further on
  const above = [0];     // self value of its ancestors, which is drawn right of all their children
  for (let i = 0, sum = 0; i < n; i++) {
    const d = depth[i];
    parent[i] = open[d];
    open[d + 1] = i;
    above[d + 1] = above[d] + self[i];
    start[i] = sum - above[d];
    sum += self[i];
  }
  for (let i = n - 1; i >= 0; i--) {
    end[i] ||= i + 1;
    if (i === 0) break;
    total[parent[i]] += total[i];
    end[parent[i]] ||= end[i];
  }
  return tree;
}

/** The functions below `root` with self and total; the total of a recursive one is counted once. */
export function functionsOf({ frames, names }, tree, root) {
  const rows = new Array(names.length);
  for (let i = Math.max(root, 1); i < tree.end[root]; i++) {
    const id = frames.name[tree.frame[i]];
    const row = (rows[id] ??= { id, name: names[id], frame: tree.frame[i], self: 0, total: 0, until: 0 });
    row.self += tree.self[i];
    if (i < row.until) continue;
    row.until = tree.end[i];     // the end of the outermost call: what is before it is counted
    row.total += tree.total[i];
  }
  return rows.filter(Boolean);
}

/** The widest node of a function below `root`, or -1. */
export function widest({ frames }, tree, id, root) {
  let best = -1;
  for (let i = Math.max(root, 1); i < tree.end[root]; i++) {
    if (frames.name[tree.frame[i]] === id && !(tree.total[i] <= tree.total[best])) best = i;
  }
  return best;
}
