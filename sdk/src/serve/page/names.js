// Function names shortened to fit: first hash and generics go, then the path from the left.

/** The forms of a name, longest first. */
export function forms(name) {
  const whole = name.replace(/::h[0-9a-f]{16}$/, '');
  // `<impl Trait for Type>::f` is known as `Type::f`.
  let rest = withoutGenerics(whole.replace(/<impl .*? for ([^<>]+)(<.*>)?>(?=::)/, '$1'));
  const list = whole === rest ? [whole] : [whole, rest];
  // `{{closure}}` says nothing without what is in front of it.
  for (let cut; (cut = rest.match(/^.*?(::|\/)(?!\{)/)); list.push(rest)) rest = rest.slice(cut[0].length);
  return list;
}

/** The longest form of at most `most` letters, but never less than the last two parts of the path. */
export function shortName(name, most = 0) {
  const list = forms(name);
  const long = list.length > 1 ? list.slice(0, -1) : list;
  return long.find((text) => text.length <= most) ?? long.at(-1);
}

/** `<T as Trait>::f::<U>` becomes `T::f`, `Vec<T>::push` becomes `Vec::push`. */
function withoutGenerics(name) {
  let out = '';
  let depth = 0;
  let kept = name[0] === '<' ? 1 : 0;     // how deep brackets are still a part of the path: `<T as …>`
  for (let i = 0; i < name.length; i++) {
    if (name[i] === '<') depth++;
    else if (name[i] === '>' && name[i - 1] !== '-') {
      depth--;
      if (depth < kept) kept = 0;
    } else {
      if (depth === 1 && name.startsWith(' as ', i)) kept = 0;
      if (depth <= kept) out += name[i];
    }
  }
  // Not brackets after all: `operator<<`.
  return depth === 0 && out ? out.replace(/::(?=::|$)/g, '') : name;
}
