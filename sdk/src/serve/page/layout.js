// Which boxes of a tree are wide enough to be seen, row by row.
//
// A subtree narrower than half a pixel is skipped whole: a million nodes leave a few thousand boxes.

const THINNEST = 0.5;

/** Boxes at `width` pixels when `zoom` fills it, as its ancestors do: row r holds nodes of depth r, left to right. */
export function layOut(tree, zoom, width) {
  const { depth, total, end, parent } = tree;
  const rows = [];
  for (let node = zoom; node >= 0; node = parent[node]) rows[depth[node]] = [node];
  const scale = total[zoom] > 0 ? width / total[zoom] : 0;
  for (let i = zoom + 1; i < end[zoom];) {
    const seen = total[i] * scale >= THINNEST;
    if (seen) (rows[depth[i]] ??= []).push(i);
    i = seen ? i + 1 : end[i];
  }
  return { tree, zoom, width, rows, scale };
}

/** Left edge and width of a node's box. */
export function extent({ tree: { start, total, end }, zoom, width, scale }, node) {
  if (node <= zoom && end[node] >= end[zoom]) return [0, width];
  return [(start[node] - start[zoom]) * scale, total[node] * scale];
}

/** The node drawn in `row` at `x`, or -1. */
export function hit(layout, row, x) {
  const inside = (node) => {
    const [left, width] = extent(layout, node);
    return x >= left && x < left + width;
  };
  return layout.rows[row]?.find(inside) ?? -1;
}
