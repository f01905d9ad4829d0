// Colour means package. The kind of package sets the family (own code warm, the rest cool and quiet), the package's name
// sets the hue, always the same one. All colours of a theme are equally light, so text on them is always readable.

/** The kinds of the format, then `runtime`, which is told from other dependencies by its name. */
export const KINDS = ['own', 'std', 'dependency', 'native', 'kernel', 'unresolved', 'runtime'];

/** The order and the words of the legend. */
export const LEGEND = [
  [0, 'own code'], [2, 'dependencies'], [6, 'async runtime'], [1, 'std'], [3, 'native'], [4, 'kernel'], [5, 'unresolved'],
];

const RUNTIMES = /^(tokio|mio|futures|async|smol|rayon|crossbeam)([_-]|$)/;

/** Per kind: first hue and range of hues, chroma. */
const FAMILIES = [[42, 38, 0.115], [258, 0, 0.014], [135, 175, 0.062], [108, 16, 0.05], [345, 20, 0.06], [0, 0, 0], [236, 16, 0.035]];

const LIGHTNESS = { light: [0.82, 0.9, 0.86, 0.87, 0.85, 0.9, 0.88], dark: [0.5, 0.36, 0.42, 0.41, 0.42, 0.36, 0.38] };

export const kindOf = (kind, name) => (kind === 2 && RUNTIMES.test(name) ? 6 : kind);

/** FNV-1a: the same package has the same colour on every machine. */
function hash(text) {
  let h = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) h = Math.imul(h ^ text.charCodeAt(i), 0x01000193);
  return (h ^ (h >>> 15)) >>> 0;
}

const cache = new Map();

/** The fill of a package's boxes in `theme` (`light` or `dark`). */
export function colour(kind, name, theme) {
  const key = `${theme}${kind}${name}`;
  let fill = cache.get(key);
  if (!fill) {
    const [hue, range, chroma] = FAMILIES[kind];
    const turn = (hash(name) % 997) / 997;
    fill = `oklch(${LIGHTNESS[theme][kind]} ${chroma} ${(hue + range * turn).toFixed(1)})`;
    cache.set(key, fill);
  }
  return fill;
}
