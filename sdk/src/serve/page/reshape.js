// Another tree of the same samples: functions hidden, direct recursion collapsed.
//
// What a hidden frame held goes to its caller; branches that become equal are merged. Loops only.

import { grow } from './data.js';

/** `hidden[frame]` is 1 for frames to leave out; `collapse` merges a function with its own caller. */
export function reshape(profile, hidden, collapse) {
  const { tree, frames } = profile;
  const merged = new Children(tree.count);
  const into = new Int32Array(tree.count);
  merged.add(-1, tree.frame[0]);
  merged.self[0] = tree.self[0];
  for (let i = 1; i < tree.count; i++) {
    const above = into[tree.parent[i]];
    const frame = tree.frame[i];
    const recursive = collapse && above > 0 && frames.name[merged.frame[above]] === frames.name[frame];
    const node = hidden[frame] || recursive ? above : merged.find(above, frame);
    merged.self[node] += tree.self[i];
    into[i] = node;
  }
  return inPreorder(merged, profile);
}

/** Nodes of a tree under construction, found by (parent, frame) in an open hash table. */
class Children {
  constructor(capacity) {
    this.count = 0;
    this.parent = new Int32Array(capacity);
    this.frame = new Int32Array(capacity);
    this.self = new Float64Array(capacity);
    this.mask = 2 ** Math.ceil(Math.log2(2 * capacity + 2)) - 1;
    this.slots = new Int32Array(this.mask + 1).fill(-1);
  }

  add(parent, frame) {
    this.parent[this.count] = parent;
    this.frame[this.count] = frame;
    return this.count++;
  }

  find(parent, frame) {
    let slot = (Math.imul(parent, 0x9e3779b1) ^ Math.imul(frame, 0x85ebca6b)) & this.mask;
    for (let node; (node = this.slots[slot]) >= 0; slot = (slot + 1) & this.mask) {
      if (this.parent[node] === parent && this.frame[node] === frame) return node;
    }
    return (this.slots[slot] = this.add(parent, frame));
  }
}

/** Siblings by name, as the server sends them, so that nothing jumps when values change. */
function inPreorder({ count, parent, frame, self }, profile) {
  const rank = ranks(profile);
  const nodes = Array.from({ length: count }, (_, i) => i);
  nodes.sort((a, b) => rank[frame[b]] - rank[frame[a]]);
  const first = new Int32Array(count).fill(-1);
  const next = new Int32Array(count).fill(-1);
  for (const node of nodes) {
    if (node === 0) continue;
    next[node] = first[parent[node]];
    first[parent[node]] = node;
  }
  const depths = [], frames = [], selves = [];
  const todo = [[0, 0]];
  while (todo.length) {
    const [node, depth] = todo.pop();
    depths.push(depth);
    frames.push(frame[node]);
    selves.push(self[node]);
    if (next[node] >= 0) todo.push([next[node], depth]);
    if (first[node] >= 0) todo.push([first[node], depth + 1]);
  }
  return grow(depths, frames, selves);
}

/** The place of each frame's name in alphabetical order. */
function ranks(profile) {
  if (!profile.ranks) {
    const { frames, names } = profile;
    const order = frames.name.map((_, i) => i).sort((a, b) => (names[frames.name[a]] < names[frames.name[b]] ? -1 : 1));
    profile.ranks = new Int32Array(order.length);
    order.forEach((id, place) => { profile.ranks[id] = place; });
  }
  return profile.ranks;
}
