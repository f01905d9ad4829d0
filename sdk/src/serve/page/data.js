// The profile as it comes from the server, made ready for the views.
//
// In: columns in preorder (depth, frame, self). Out: a tree as typed arrays with parent, start, total and the end of each
// subtree. Loops only: a stack may be thousands of frames deep.

import { kindOf } from './colours.js';

/** The profile of one answer of `/api/profile`. */
export function decode(answer) {
  const { names, packages, files, frames, nodes } = answer;
  const kinds = frames.kind.map((kind, frame) => kindOf(kind, packages[frames.package[frame]]));
  const ids = new Map(names.map((name, id) => [name, id]));
  const tree = grow(nodes.depth, nodes.frame, nodes.self);
  const { samples: weight, sum_squares: squares } = answer;
  const perSample = answer.kind.period * (answer.kind.unit === 'nanoseconds' ? 1 : 0);
  // The number of samples that shares rest on: with weights, (Σw)²/Σw².
  const evidence = squares ? (weight * weight) / squares : weight;
  return { answer, names, packages, files, frames, kinds, ids, tree, weight, perSample, evidence };
}

/** A tree from preorder columns: children follow their parent, one deeper. */
export function grow(depth, frame, self) {
  const count = depth.length;
  const tree = {
    count, depth: Int32Array.from(depth), frame: Int32Array.from(frame), self: Float64Array.from(self),
    parent: new Int32Array(count), start: new Float64Array(count), total: Float64Array.from(self), end: new Int32Array(count),
  };
  const { parent, start, total, end } = tree;
  const open = [-1];      // the latest node at each depth, shifted by one
  const above = [0];      // self value of its ancestors: drawn right of their children, so not left of this node
  let sum = 0;
  for (let i = 0; i < count; i++) {
    const d = depth[i];
    parent[i] = open[d];
    open[d + 1] = i;
    above[d + 1] = above[d] + self[i];
    start[i] = sum - above[d];
    sum += self[i];
    end[i] = i + 1;
  }
  for (let i = count - 1; i > 0; i--) {
    const p = parent[i];
    total[p] += total[i];
    if (end[i] > end[p]) end[p] = end[i];
  }
  return tree;
}

/** The functions of the subtree at `root`: self and total, the total of a recursive function counted once. */
export function functionsOf(profile, tree, root) {
  const { frames, names } = profile;
  const self = new Float64Array(names.length);
  const total = new Float64Array(names.length);
  const frameOf = new Int32Array(names.length).fill(-1);
  const until = new Int32Array(names.length);   // the end of the outermost subtree of the function that is open
  for (let i = Math.max(root, 1); i < tree.end[root]; i++) {
    const name = frames.name[tree.frame[i]];
    if (frameOf[name] < 0) frameOf[name] = tree.frame[i];
    self[name] += tree.self[i];
    if (i >= until[name]) {
      until[name] = tree.end[i];
      total[name] += tree.total[i];
    }
  }
  const rows = [];
  for (let name = 0; name < names.length; name++) {
    if (frameOf[name] >= 0) rows.push({ id: name, name: names[name], frame: frameOf[name], self: self[name], total: total[name] });
  }
  return rows;
}

/** The widest node of a function, or -1. */
export function widest(profile, tree, id, root = 0) {
  let best = -1;
  for (let i = Math.max(root, 1); i < tree.end[root]; i++) {
    if (profile.frames.name[tree.frame[i]] === id && (best < 0 || tree.total[i] > tree.total[best])) best = i;
  }
  return best;
}
