// Another tree of the same samples: frames hidden, direct recursion collapsed.
//
// What a hidden frame held goes to its caller; branches that become equal are merged. Loops only.

import { grow } from './data.js';

/** `hidden[frame]` is 1 for frames to leave out; `collapse` merges a function with its caller if they are the same. */
export function reshape({ tree, frames }, hidden, collapse) {
  const merged = new Nodes(tree.count);
  const into = new Int32Array(tree.count);
  for (let i = 0; i < tree.count; i++) {
    const frame = tree.frame[i];
    const above = i ? into[tree.parent[i]] : -1;
    const again = collapse && above > 0 && frames.name[merged.frame[above]] === frames.name[frame];
    into[i] = i && (hidden[frame] || again) ? above : merged.find(above, frame);
    merged.self[into[i]] += tree.self[i];
  }
  return inPreorder(merged);
}

/** A tree under construction; nodes are found by (parent, frame) in an open hash table. */
class Nodes {
  constructor(room) {
    this.count = 0;
    this.parent = new Int32Array(room);
    this.frame = new Int32Array(room);
    this.self = new Float64Array(room);
    this.slots = new Int32Array(2 ** Math.ceil(Math.log2(2 * room + 2)));     // node + 1, or 0
  }

  find(parent, frame) {
    const mask = this.slots.length - 1;
    let slot = (Math.imul(parent + 1, 0x9e3779b1) ^ Math.imul(frame, 0x85ebca6b)) & mask;
    for (let node; (node = this.slots[slot] - 1) >= 0; slot = (slot + 1) & mask) {
      if (this.parent[node] === parent && this.frame[node] === frame) return node;
    }
    this.parent[this.count] = parent;
    this.frame[this.count] = frame;
    this.slots[slot] = ++this.count;
    return this.count - 1;
  }
}

/** Widest siblings first, as the server sends them. */
function inPreorder({ count, parent, frame, self }) {
  const total = self.slice();
  for (let i = count - 1; i > 0; i--) total[parent[i]] += total[i];
  const [first, next] = [new Int32Array(count), new Int32Array(count)];     // child and sibling, 0 for none
  const rising = Array.from({ length: count }, (_, i) => i).sort((a, b) => total[a] - total[b] || frame[b] - frame[a]);
  for (const node of rising) {
    if (!node) continue;
    next[node] = first[parent[node]];
    first[parent[node]] = node;
  }
  const order = [], depth = [];
  for (const todo = [[0, 0]]; todo.length;) {
    const [node, d] = todo.pop();
    order.push(node);
    depth.push(d);
    if (next[node]) todo.push([next[node], d]);
    if (first[node]) todo.push([first[node], d + 1]);
  }
  return grow(depth, order.map((node) => frame[node]), order.map((node) => self[node]));
}
