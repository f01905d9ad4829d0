// Places in a tree as lists of names, so that a zoom outlives refreshes, reloads and links.

/** Longest path a link carries; the browser's history keeps all of it. */
const LINK_NAMES = 200;

/** The names from below the root down to `node`. */
export function namesTo(profile, tree, node) {
  const names = [];
  for (; node > 0; node = tree.parent[node]) names.push(profile.names[profile.frames.name[tree.frame[node]]]);
  return names.reverse();
}

/**
 * The node that `names` lead to, and whether all of them were met; else the nearest ancestor. With `whole`, `names` are
 * the whole path; without, some of it: then the shallowest match counts, of those the widest.
 */
export function resolve(profile, tree, names, whole) {
  const ids = names.map((name) => profile.ids.get(name) ?? -1);
  const met = new Int32Array(tree.count);
  let best = 0;
  for (let i = 1; i < tree.count && ids.length; i++) {
    const before = met[tree.parent[i]];
    met[i] = before;
    if (before === ids.length || profile.frames.name[tree.frame[i]] !== ids[before]) continue;
    if (whole && tree.depth[i] !== before + 1) continue;
    met[i] = before + 1;
    if (met[i] > met[best] || (met[i] === met[best] && better(tree, i, best))) best = i;
  }
  return { node: best, found: met[best] === ids.length };
}

const better = (tree, a, b) => tree.depth[a] < tree.depth[b] || (tree.depth[a] === tree.depth[b] && tree.total[a] > tree.total[b]);

/** The shortest end of the path that still leads to `node`: what a link carries. */
export function linkNames(profile, tree, node) {
  const names = namesTo(profile, tree, node);
  for (let n = 1; n < names.length; n *= 2) {
    if (resolve(profile, tree, names.slice(-n), false).node === node) return names.slice(-n);
  }
  return names.slice(0, LINK_NAMES);
}
