// What can be looked at: CPU time, what of the heap is in use, what was allocated, and what Go's runtime keeps; most in two units,
// what there is at a moment also by how it grew. Only what there is a profile of is shown.

import { byId, refill, toggle } from './dom.js';

/** Titles, and the first words of the types that go with them. */
const KINDS = [
  ['CPU', 'cpu'], ['Heap in use', 'inuse'], ['Allocated', 'alloc'], ['Goroutines', 'goroutine'], ['Block', 'block'], ['Mutex', 'mutex'],
];
const MEMORY = { space: 'Bytes', objects: 'Objects' };
const WAITS = { delay: 'Time', contentions: 'Count' };
/** The second words of the types of a kind, each with its title. */
const UNITS = { inuse: MEMORY, alloc: MEMORY, block: WAITS, mutex: WAITS };

const kindOf = (type) => type.split('_')[0];
/** Whether it counts things. */
const isCount = (type) => /_(objects|contentions)$/.test(type);

export const isHeap = (type) => UNITS[kindOf(type)] === MEMORY;

/** Whether values are how much there is at a moment. */
export const isState = (type) => ['inuse', 'goroutine'].includes(kindOf(type));

export const titleOf = (type) => KINDS.find(([, kind]) => kind === kindOf(type))[0];

/** What the account of the profiler calls the kind of a type. */
export const accountOf = (type) => (isHeap(type) ? 'heap' : kindOf(type));

/** The type of a kind, which counts if that before did. */
const typeOf = (kind, counts) => (kind in UNITS ? `${kind}_${Object.keys(UNITS[kind])[Number(counts)]}` : kind);

/** A change of the view to a type of another kind, in which paths lead elsewhere. */
const toKind = (type) => ({ type, growth: '', path: [], whole: true });

/** The change to the next kind of those that there are. */
export function nextKind({ type }, types) {
  const kinds = KINDS.map(([, kind]) => kind).filter((kind) => types.includes(typeOf(kind, isCount(type))));
  return toKind(typeOf(kinds[(kinds.indexOf(kindOf(type)) + 1) % kinds.length] ?? 'cpu', isCount(type)));
}

/** The change from what is measured to what is counted, or back. */
export const otherUnit = ({ type }) => ({ type: typeOf(kindOf(type), !isCount(type)) });

/** The choice between the `types` that there are; `choose` gets what changes in the view. */
export function showTypes({ type }, types, choose) {
  const known = [...new Set(['cpu', ...types, type])];
  const kind = ([title, name]) => known.includes(typeOf(name, isCount(type)))
    && toggle(name, name === kindOf(type), title, () => choose(toKind(typeOf(name, isCount(type)))));
  const unit = (title, i) => toggle(title, isCount(type) === Boolean(i), title, () => choose({ type: typeOf(kindOf(type), i) }));
  refill(byId('types'), [known, type], () => (known.length > 1 ? KINDS.map(kind) : []));
  refill(byId('units'), [type], () => Object.values(UNITS[kindOf(type)] ?? {}).map(unit));
  byId('growth').hidden = !isState(type);
}
