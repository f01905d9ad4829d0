// Search by regular expression: which functions match, and what they hold together.

/** For each name, whether it matches: `hits` is null without a search, `error` says what is wrong with it. */
export function match(names, text, matchCase) {
  try {
    const regex = new RegExp(text, matchCase ? '' : 'i');
    return { hits: text ? names.map((name) => regex.test(name)) : null, error: '' };
  } catch (problem) {
    return { hits: null, error: problem.message };
  }
}

/** An expression for exactly this name. */
export const exactly = (name) => `^${name.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&')}$`;

/** What the matches below `root` hold, and the outermost ones: a match inside a match is not counted again. */
export function total({ frames }, tree, root, hits) {
  const nodes = [];
  let value = 0;
  for (let i = Math.max(root, 1); i < tree.end[root];) {
    const hit = hits[frames.name[tree.frame[i]]];
    if (hit) {
      nodes.push(i);
      value += tree.total[i];
    }
    i = hit ? tree.end[i] : i + 1;
  }
  return { nodes, value };
}
