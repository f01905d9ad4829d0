// The view as the address says it: reload, Back and a link show the same.
//
// `from`, `to`, `tag` as the server's; `p` path of the zoom, `h` what is hidden (`@std`: a kind of package), `q` search,
// `case`, `view`, `sort`, `root`, `r` recursion collapsed.

const NUMBER = /^-?\d+(\.\d+)?$/;
/** Valid values, default. */
const CHOICES = {
  from: [NUMBER, '-300'], to: [NUMBER, ''], view: [/^(graph|table|both)$/, ''], sort: [/^-?(name|self|total|samples)$/, '-self'],
  root: [/^bottom$/, 'top'], case: [/^1$/, ''], r: [/^1$/, ''], q: [/^/, ''],
};

/** The view of the address. Of a zoom, it has what leads there; the browser's history has the whole path. */
export function read() {
  const query = new URLSearchParams(location.search);
  const state = { path: history.state?.path ?? query.getAll('p'), whole: Boolean(history.state?.path), hidden: query.getAll('h'), tags: query.getAll('tag') };
  for (const [key, [valid, normal]] of Object.entries(CHOICES)) state[key] = valid.test(query.get(key) ?? '') ? query.get(key) ?? normal : normal;
  return state;
}

/** Puts the view into the address, as a new step of the history unless `replace`. `link` leads to the zoom. */
export function write(state, link, replace) {
  const query = new URLSearchParams();
  for (const [key, [, normal]] of Object.entries(CHOICES)) if (state[key] !== normal) query.set(key, state[key]);
  for (const [key, values] of [['tag', state.tags], ['p', link], ['h', state.hidden]]) values.forEach((value) => query.append(key, value));
  const text = query.toString().replace(/%3A/g, ':').replace(/%2F/g, '/').replace(/%40/g, '@');
  history[replace ? 'replaceState' : 'pushState']({ path: state.path }, '', text ? `?${text}` : location.pathname);
}

/** What the server is asked for. */
export function address({ from, to, tags }, format) {
  const query = new URLSearchParams({ from, ...(to && { to }), ...(format && { format }) });
  tags.forEach((tag) => query.append('tag', tag));
  return `api/profile?${query}`;
}
