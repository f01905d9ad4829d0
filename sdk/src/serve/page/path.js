// Places in a tree as lists of names, so that a zoom outlives refreshes, reloads and links.

/** Most letters of a link's path, for servers take no address of any length; the browser's history keeps it all. */
const IN_LINK = 3000;

/** The names from below the root down to `node`. */
export function namesTo({ names, frames }, tree, node) {
  const path = [];
  for (; node > 0; node = tree.parent[node]) path.push(names[frames.name[tree.frame[node]]]);
  return path.reverse();
}

/**
 * Where `path` leads, and whether all of it was met; else the nearest ancestor. A path is `whole`, or some of the names
 * on the way: then the shallowest place counts, of those the widest.
 */
export function resolve({ ids, frames }, tree, path, whole) {
  const wanted = path.map((name) => ids.get(name));
  const met = new Int32Array(tree.count);
  let best = 0;
  for (let i = 1; i < tree.count && wanted.length; i++) {
    const before = met[tree.parent[i]];
    met[i] = before;
    if (frames.name[tree.frame[i]] !== wanted[before] || (whole && tree.depth[i] !== before + 1)) continue;
    met[i]++;
    const closer = met[i] - met[best] || tree.depth[best] - tree.depth[i] || tree.total[i] - tree.total[best];
    if (closer > 0) best = i;
  }
  return { node: best, found: met[best] === wanted.length };
}

/** The shortest end of the path that leads to `node`, for a link. */
export function linkTo(profile, tree, node) {
  const path = namesTo(profile, tree, node);
  let room = IN_LINK;
  for (let n = 1; n < path.length; n *= 2) {
    if (resolve(profile, tree, path.slice(-n), false).node === node) return path.slice(-n);
  }
  return path.filter((name) => (room -= name.length + 3) > 0);
}
