// What can be looked at: CPU time, what of the heap is in use, what was allocated; the heap in bytes or objects, what is in
// use also by how it grew. Shown only where there is a heap profile.

import { byId, refill, toggle } from './dom.js';

/** Titles, and the first words of the types that go with them. */
const KINDS = [['CPU', 'cpu'], ['Heap in use', 'inuse'], ['Allocated', 'alloc']];

const kindOf = (type) => type.split('_')[0];
const isObjects = (type) => type.endsWith('_objects');

/** Whether values are how much is in use at a moment. */
export const isState = (type) => kindOf(type) === 'inuse';

export const titleOf = (type) => KINDS.find(([, kind]) => kind === kindOf(type))[0];

/** The type of a kind: in objects if the one before was. */
const typeOf = (kind, before) => (kind === 'cpu' ? kind : `${kind}_${isObjects(before) ? 'objects' : 'space'}`);

/** A change of the view to a type of another kind, in which paths lead elsewhere. */
const toKind = (type) => ({ type, growth: '', path: [], whole: true });

/** The change to the next kind of those that there are. */
export function nextKind({ type }, types) {
  const kinds = KINDS.map(([, kind]) => kind).filter((kind) => types.includes(typeOf(kind, type)));
  return toKind(typeOf(kinds[(kinds.indexOf(kindOf(type)) + 1) % kinds.length] ?? 'cpu', type));
}

/** The change from bytes to objects, or back. */
export const otherUnit = ({ type }) => ({ type: typeOf(kindOf(type), isObjects(type) ? '' : '_objects') });

/** The choice between the `types` that there are; `choose` gets what changes in the view. */
export function showTypes({ type }, types, choose) {
  const known = [...new Set(['cpu', ...types, type])];
  const kind = ([title, name]) => known.includes(typeOf(name, type))
    && toggle(name, name === kindOf(type), title, () => choose(toKind(typeOf(name, type))));
  const unit = (title, objects) => toggle(title, isObjects(type) === objects, title, () =>
    choose({ type: typeOf(kindOf(type), objects ? '_objects' : '') }));
  const heap = type !== 'cpu';
  refill(byId('types'), [known, type], () => (known.length > 1 ? KINDS.map(kind) : []));
  refill(byId('units'), [type], () => (heap ? [unit('Bytes', false), unit('Objects', true)] : []));
  byId('growth').hidden = !isState(type);
}
