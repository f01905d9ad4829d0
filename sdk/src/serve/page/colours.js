// Colour means package: its kind sets the family (own code warm, the rest cool and quiet), its name the hue, the same
// one everywhere. Boxes of a theme are about equally light, so that text on them can always be read.

/**
 * Kinds of packages as the server numbers them; `runtime` is told from other dependencies by its name.
 * Key, words, first hue, range of hues, chroma, lightness in light, in dark.
 */
export const KINDS = [
  ['own', 'own code', 62, 18, 0.11, 0.84, 0.47],
  ['std', 'std', 258, 0, 0.012, 0.915, 0.36],
  ['dependency', 'dependencies', 150, 150, 0.05, 0.875, 0.42],
  ['native', 'native', 105, 12, 0.05, 0.88, 0.41],
  ['kernel', 'kernel', 345, 20, 0.05, 0.87, 0.42],
  ['unresolved', 'unresolved', 0, 0, 0, 0.9, 0.37],
  ['runtime', 'async runtime', 246, 14, 0.035, 0.89, 0.39],
  ['process', 'processes', 0, 360, 0.07, 0.8, 0.5],
];

const RUNTIMES = /^(tokio|mio|futures|async|smol|rayon|crossbeam)([_-]|$)/;

/** What else the canvas is drawn with. */
export const INKS = {
  light: {
    root: '#dfe3e8', text: '#16191d', faded: '#59616c', veil: 0.35, lit: '#2a2f36', selected: '#1f62d0', match: '#a3127c',
  },
  dark: {
    root: '#333a43', text: '#f3f4f6', faded: '#a3acb8', veil: 0.3, lit: '#dfe4ea', selected: '#79aefc', match: '#ff7fd6',
  },
};

export const isDark = () => document.documentElement.dataset.theme === 'dark';

export const kindOf = (kind, name) => (kind === 2 && RUNTIMES.test(name) ? 6 : kind);

const known = new Map();

/** The fill of a package's boxes; without a name, its kind's. */
export function colour(kind, name, dark = isDark()) {
  const key = `${dark}${kind}${name}`;
  if (!known.has(key)) {
    const [, , hue, range, chroma, light, dim] = KINDS[kind];
    known.set(key, `oklch(${dark ? dim : light} ${chroma} ${hue + range * turn(name)})`);
  }
  return known.get(key);
}

/** A number in [0, 1) from a name, by FNV-1a. */
function turn(name) {
  let hash = 0x811c9dc5;
  for (let i = 0; i < name.length; i++) hash = Math.imul(hash ^ name.charCodeAt(i), 0x01000193);
  return name ? ((hash ^ (hash >>> 15)) >>> 0) % 997 / 997 : 0.5;
}
