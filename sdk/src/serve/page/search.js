// Search by regular expression: which functions match, how much they hold together, where they are.

/** A compiled search; `error` says what is wrong with the expression. Nothing is searched for an empty one. */
export function compile(text, matchCase) {
  if (!text) return { regex: null, error: '' };
  try {
    return { regex: new RegExp(text, matchCase ? '' : 'i'), error: '' };
  } catch (problem) {
    return { regex: null, error: problem.message.replace(/^Invalid regular expression: /, '') };
  }
}

/** An expression that matches exactly this name. */
export const exactly = (name) => `^${name.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&')}$`;

/** For each name, 1 where it matches; null without a search. */
export function matchNames(names, regex) {
  return regex && Uint8Array.from(names, (name) => (regex.test(name) ? 1 : 0));
}

/**
 * What the matches below `root` hold: a match inside a match is not counted again.
 * `nodes` are the outermost matches, from left to right.
 */
export function total(profile, tree, root, hits) {
  const nodes = [];
  let value = 0;
  let i = Math.max(root, 1);
  while (i < tree.end[root]) {
    if (hits[profile.frames.name[tree.frame[i]]]) {
      nodes.push(i);
      value += tree.total[i];
      i = tree.end[i];
    } else i++;
  }
  return { nodes, value };
}
