// What tests may ask of the page: `window.profilerPage`. It reads and changes nothing.

import { widest } from './data.js';
import { error } from './format.js';
import { namesTo } from './path.js';
import { theme } from './theme.js';

/** `state()` is the view of the address, `view` what was derived from it. */
export function expose(state, view, graph, feed) {
  const hook = {
    /** The view, and what is drawn of it. */
    state: () => ({
      ...state(), theme: theme(), shown: view.shown, paused: feed.paused, answers: view.answers, found: view.found,
      samples: view.profile?.weight, nodes: view.tree?.count, boxes: graph.layout?.boxes, rows: graph.layout?.rows.length,
      zoom: view.tree && namesTo(view.profile, view.tree, view.zoom), matched: view.matches?.value, place: view.place,
      scroll: graph.scroller.scrollTop, lit: view.profile?.names[graph.lit] ?? null, timings: { ...view.timings, ...graph.timings },
    }),
    /** Where the widest box of a function is, in the window's coordinates; null if there is none. */
    boxAt(name) {
      const node = view.tree ? widest(view.profile, view.tree, view.profile.ids.get(name) ?? -1, view.zoom) : -1;
      return node < 0 || !graph.layout ? null : graph.box(node);
    },
    /** The rows of the table, in its order, with shares and their errors in percent. */
    table: () => view.rows.map(({ name, self, total }) => {
      const share = (n) => ({ share: (100 * n) / view.profile.weight, error: Number(error(n / view.profile.weight, view.profile.evidence)) });
      return { name, self, total, ofSelf: share(self), ofTotal: share(total) };
    }),
  };
  window.profilerPage = Object.freeze(hook);
}
