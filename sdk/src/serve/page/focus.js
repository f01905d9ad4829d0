// The samples of one function alone: below it what its calls call, or who called it.
//
// A call within a call of the same function counts once, with the outer one. Loops only.

import { Growing } from './reshape.js';

/** The tree of the function `id`, or null where it has no samples. */
export function around({ tree, frames }, id, callers) {
  const grown = new Growing(frames.name.length, tree.frame[0]);
  const into = new Int32Array(tree.count);
  let frame;
  for (let i = 1; i < tree.count; i++) {
    if (frames.name[tree.frame[i]] !== id) continue;
    frame ??= tree.frame[i];
    let node = grown.below(0, frame);
    if (callers) {
      for (let above = tree.parent[i]; above > 0; above = tree.parent[above]) node = grown.below(node, tree.frame[above]);
      grown.self[node] += tree.total[i];
    } else {
      into[i] = node;
      grown.self[node] += tree.self[i];
      for (let j = i + 1; j < tree.end[i]; j++) {
        into[j] = grown.below(into[tree.parent[j]], tree.frame[j]);
        grown.self[into[j]] += tree.self[j];
      }
    }
    i = tree.end[i] - 1;
  }
  return frame === undefined ? null : grown.tree();
}
