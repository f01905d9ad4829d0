// Function names shortened to fit: first the hash and the generics go, then the path from the left.

/** The forms of a name, longest first. */
export function forms(name) {
  const whole = name.replace(/::h[0-9a-f]{16}$/, '');
  const plain = withoutGenerics(whole);
  const list = whole === plain ? [whole] : [whole, plain];
  let rest = plain;
  for (;;) {
    const cut = rest.search(/(::|\/)(?!\{)/);
    if (cut < 0 || /^[^:/]*\+0x/.test(rest)) break;
    rest = rest.slice(cut + (rest[cut] === '/' ? 1 : 2));
    if (rest) list.push(rest);
  }
  return list;
}

/** The one form for a table: no hash, no generics, at most two parts of the path. */
export function shortName(name) {
  const list = forms(name);
  return list.at(-2) ?? list[0];
}

/** `<T as Trait>::f::<U>` becomes `T::f`, `Vec<T>::push` becomes `Vec::push`. */
function withoutGenerics(name) {
  let out = '';
  let depth = 0;
  let kept = 0;                    // depth up to which a leading `<T as …>` is a part of the path
  if (name[0] === '<') kept = 1;
  for (let i = 0; i < name.length; i++) {
    const c = name[i];
    if (c === '<') { depth++; continue; }
    if (c === '>' && name[i - 1] !== '-') {
      depth = Math.max(0, depth - 1);
      if (depth < kept) kept = 0;
      continue;
    }
    if (depth === 1 && kept && name.startsWith(' as ', i)) kept = 0;
    if (depth <= kept) out += c;
  }
  if (depth !== 0) return name;    // not brackets: `operator<<`
  out = out.replace(/(::)+$/, '').replace(/::::/g, '::');
  return out.trim() || name;
}
