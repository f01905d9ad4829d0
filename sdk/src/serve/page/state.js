// The view as the address says it: reload, Back and a link show the same.
//
// Letters: `from`, `to`, `tag` as the server's; `p` path of the zoom, `h` hidden functions (`@std`: a kind of package),
// `q` search, `case`, `view`, `sort`, `root`, `r` recursion collapsed.

export const DEFAULTS = {
  from: '-300', to: '', tags: [], path: [], whole: true, hidden: [], query: '', matchCase: false,
  view: 'auto', sort: '-self', root: 'top', collapse: false,
};

/** The view of the address at hand. The whole path of a zoom is in the history; a link carries what is needed of it. */
export function read() {
  const query = new URLSearchParams(location.search);
  const one = (key, valid, fallback) => (valid.test(query.get(key) ?? '') ? query.get(key) : fallback);
  const kept = history.state?.path;
  return {
    from: one('from', /^-?\d+(\.\d+)?$/, DEFAULTS.from),
    to: one('to', /^-?\d+(\.\d+)?$/, ''),
    tags: query.getAll('tag').map(splitTag).filter(([key]) => key),
    path: kept ?? query.getAll('p'),
    whole: Boolean(kept),
    hidden: query.getAll('h'),
    query: query.get('q') ?? '',
    matchCase: query.get('case') === '1',
    view: one('view', /^(graph|table|both)$/, DEFAULTS.view),
    sort: one('sort', /^-?(name|self|total|samples)$/, DEFAULTS.sort),
    root: one('root', /^bottom$/, DEFAULTS.root),
    collapse: query.get('r') === '1',
  };
}

/** Puts the view into the address; as a new step of the history, unless `replace`. `link` are the names for `p`. */
export function write(state, link, replace) {
  const query = windowAndTags(state);
  if (state.from === DEFAULTS.from && !state.to) query.delete('from');
  link.forEach((name) => query.append('p', name));
  state.hidden.forEach((name) => query.append('h', name));
  if (state.query) query.set('q', state.query);
  if (state.matchCase) query.set('case', '1');
  for (const key of ['view', 'sort', 'root']) if (state[key] !== DEFAULTS[key]) query.set(key, state[key]);
  if (state.collapse) query.set('r', '1');
  const text = query.toString().replace(/%3A/g, ':').replace(/%2F/g, '/').replace(/%40/g, '@');
  const address = text ? `?${text}` : location.pathname;
  const kept = { path: state.path };
  if (replace) history.replaceState(kept, '', address);
  else history.pushState(kept, '', address);
}

/** What of the view the server must know. */
export function windowAndTags(state) {
  const query = new URLSearchParams({ from: state.from });
  if (state.to) query.set('to', state.to);
  state.tags.forEach(([key, value]) => query.append('tag', `${key}=${value}`));
  return query;
}

/** Whether the window ends now, so that it moves on. */
export const moving = (state) => !state.to;

function splitTag(text) {
  const at = text.indexOf('=');
  return at < 0 ? ['', ''] : [text.slice(0, at), text.slice(at + 1)];
}
