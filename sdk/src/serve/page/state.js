// The view as the address says it: reload, Back and a link show the same.
//
// `from`, `to`, `tag`, `type`, `growth`, `service`, `pid` as the server's; `p` path of the zoom, `h` what is hidden (`@std`: a kind of package), `f` the function whose samples alone are shown, `callers` if below it stand those, `q` search,
// `case`, `view`, `sort`, `root`, `r` recursion collapsed, `theme`.

import { isState } from './types.js';

const NUMBER = /^-?\d+(\.\d+)?$/;
/** Valid values, default. */
const CHOICES = {
  from: [NUMBER, '-300'], to: [NUMBER, ''],
  type: [/^(cpu|goroutine|(inuse|alloc)_(space|objects)|(block|mutex)_(delay|contentions))$/, 'cpu'], growth: [/^1$/, ''],
  service: [/./, ''], pid: [/^\d+$/, ''],
  view: [/^(graph|table|both)$/, ''], sort: [/^-?(name|self|total|samples)$/, '-self'], root: [/^bottom$/, 'top'],
  f: [/./, ''], callers: [/^1$/, ''], q: [/./, ''], case: [/^1$/, ''], r: [/^1$/, ''], theme: [/^(light|dark)$/, ''],
};

/** The view of the address. Of a zoom, it has what leads there; the browser's history has the whole path. */
export function read() {
  const query = new URLSearchParams(location.search);
  const path = history.state?.path;
  const state = { path: path ?? query.getAll('p'), whole: Boolean(path), h: query.getAll('h'), tag: query.getAll('tag') };
  for (const [key, [valid, normal]] of Object.entries(CHOICES)) {
    const value = query.get(key) ?? '';
    state[key] = valid.test(value) ? value : normal;
  }
  return state;
}

/** Puts the view into the address, as a new step of the history unless `replace`. `p` leads to the zoom. */
export function write(state, p, replace) {
  const query = new URLSearchParams();
  for (const [key, [, normal]] of Object.entries(CHOICES)) if (state[key] !== normal) query.set(key, state[key]);
  for (const [key, values] of Object.entries({ tag: state.tag, p, h: state.h })) {
    values.forEach((value) => query.append(key, value));
  }
  const text = query.toString().replace(/%3A/g, ':').replace(/%2F/g, '/').replace(/%40/g, '@');
  history[replace ? 'replaceState' : 'pushState']({ path: state.path }, '', text ? `?${text}` : location.pathname);
}

/** What the server is asked for. */
export function address({ from, to, tag, type, growth, service, pid }, format) {
  const query = new URLSearchParams({ from, ...(to && { to }), ...(format && { format }) });
  if (type !== 'cpu') query.set('type', type);
  if (growth && isState(type)) query.set('growth', growth);
  for (const [key, value] of Object.entries({ service, pid })) if (value) query.set(key, value);
  tag.forEach((value) => query.append('tag', value));
  return `api/profile?${query}`;
}
