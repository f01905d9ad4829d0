// Which boxes of a tree are wide enough to be seen, row by row.
//
// A subtree narrower than half a pixel is skipped whole: a million nodes leave a few thousand boxes.

const THINNEST = 0.5;

/**
 * The rows of boxes at `width` pixels when `zoom` fills it. Its ancestors fill the rows above.
 * Row r holds nodes of depth r from left to right.
 */
export function layOut(tree, zoom, width) {
  const rows = [];
  for (let node = zoom; node >= 0; node = tree.parent[node]) rows[tree.depth[node]] = [node];
  const scale = tree.total[zoom] > 0 ? width / tree.total[zoom] : 0;
  const { depth, total, end } = tree;
  let boxes = rows.length;
  let i = zoom + 1;
  while (i < end[zoom]) {
    if (total[i] * scale < THINNEST) { i = end[i]; continue; }
    (rows[depth[i]] ??= []).push(i);
    boxes++;
    i++;
  }
  return { tree, zoom, width, rows, boxes, scale };
}

/** The left edge and width of a node's box; ancestors of the zoom fill the row. */
export function extent({ tree, zoom, width, scale }, node) {
  if (node <= zoom && tree.end[node] >= tree.end[zoom]) return [0, width];
  return [(tree.start[node] - tree.start[zoom]) * scale, tree.total[node] * scale];
}

/** The node drawn in `row` at `x`, or -1. */
export function hit(layout, row, x) {
  const nodes = layout.rows[row];
  if (!nodes) return -1;
  let low = 0;
  let high = nodes.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (extent(layout, nodes[middle])[0] <= x) low = middle;
    else high = middle - 1;
  }
  const [left, width] = extent(layout, nodes[low]);
  return x >= left && x < left + Math.max(width, 1) ? nodes[low] : -1;
}
