// Another tree of the same samples: frames hidden, direct recursion collapsed.
//
// What a hidden frame held goes to its caller; branches that become equal are merged. Loops only.

import { grow } from './data.js';

/** `hidden[frame]` says what to leave out; `collapse` merges a function with its caller if they are the same. */
export function reshape({ tree, frames }, hidden, collapse) {
  const parent = [], frame = [], self = [];
  const known = new Map();     // (parent, frame) → node
  const into = new Int32Array(tree.count);
  for (let i = 0; i < tree.count; i++) {
    const f = tree.frame[i];
    const above = i ? into[tree.parent[i]] : -1;
    const again = collapse && above > 0 && frames.name[frame[above]] === frames.name[f];
    const key = above * hidden.length + f;
    let node = i && (hidden[f] || again) ? above : known.get(key);
    if (node === undefined) {
      node = parent.push(above) - 1;
      frame.push(f);
      self.push(0);
      known.set(key, node);
    }
    self[node] += tree.self[i];
    into[i] = node;
  }
  return inPreorder(parent, frame, self);
}

/** Widest siblings first, as the server sends them. */
function inPreorder(parent, frame, self) {
  const total = self.slice();
  for (let i = total.length - 1; i > 0; i--) total[parent[i]] += total[i];
  const children = parent.map(() => []);
  for (let i = 1; i < parent.length; i++) children[parent[i]].push(i);
  const order = [], depth = [];
  for (const todo = [[0, 0]]; todo.length;) {
    const [node, d] = todo.pop();
    order.push(node);
    depth.push(d);
    // The last one pushed comes first.
    children[node].sort((a, b) => total[a] - total[b] || frame[b] - frame[a]);
    for (const child of children[node]) todo.push([child, d + 1]);
  }
  return grow(depth, order.map((node) => frame[node]), order.map((node) => self[node]));
}
