// What tests may ask of the page: `window.profilerPage`. It changes nothing.

import { isDark } from './colours.js';
import { widest } from './data.js';
import { error } from './format.js';
import { namesTo } from './path.js';

/** `state()` is the address's view, `view` what was derived from it. */
export function expose(state, view, graph, feed) {
  const share = (n) => {
    const p = view.profile.share(n);
    return { percent: 100 * p, error: Number(error(p, view.profile.evidence)) };
  };
  window.profilerPage = Object.freeze({
    state: () => ({
      ...state(), dark: isDark(), shown: view.shown, paused: feed.paused, answers: view.answers, found: view.found,
      shows: view.profile?.answer.kind.type, grown: Boolean(view.profile?.answer.growth), samples: view.profile?.weight, nodes: view.tree?.count,
      rows: graph.layout?.rows.length, boxes: graph.layout?.rows.flat().length,
      zoom: view.tree && namesTo(view.profile, view.tree, view.zoom), matched: view.matches?.value,
      lit: view.profile?.names[graph.lit], timings: { ...view.timings, ...graph.timings },
    }),
    /** Where the widest box of a function is, in the window's coordinates. */
    boxAt(name) {
      const node = widest(view.profile, view.tree, view.profile.ids.get(name), view.zoom);
      return node < 0 ? null : graph.box(node);
    },
    /** The rows of the table in its order; values in samples, shares and errors in percent. */
    table: () => view.rows.map(({ name, self, total }) =>
      ({ name, self, total, ofSelf: share(self), ofTotal: share(total) })),
  });
}
