// Another tree of the same samples: frames hidden, direct recursion collapsed.
//
// What a hidden frame held goes to its caller; branches that become equal are merged. Loops only.

import { grow } from './data.js';

/** A tree that grows from its root, which is there: nodes by what is above them and their frame. */
export class Growing {
  constructor(frames, root) {
    Object.assign(this, { frames, parent: [-1], frame: [root], self: [0], known: new Map() });
  }

  below(above, frame) {
    const key = above * this.frames + frame;
    let node = this.known.get(key);
    if (node === undefined) {
      node = this.parent.push(above) - 1;
      this.frame.push(frame);
      this.self.push(0);
      this.known.set(key, node);
    }
    return node;
  }

  tree() {
    return inPreorder(this.parent, this.frame, this.self);
  }
}

/** `hidden[frame]` says what to leave out; `collapse` merges a function with its caller if they are the same. */
export function reshape({ tree, frames }, hidden, collapse) {
  const grown = new Growing(hidden.length, tree.frame[0]);
  const into = new Int32Array(tree.count);
  grown.self[0] = tree.self[0];
  for (let i = 1; i < tree.count; i++) {
    const f = tree.frame[i];
    const above = into[tree.parent[i]];
    const again = collapse && above > 0 && frames.name[grown.frame[above]] === frames.name[f];
    into[i] = hidden[f] || again ? above : grown.below(above, f);
    grown.self[into[i]] += tree.self[i];
  }
  return grown.tree();
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
