// One trace, of which the samples of all processes are shown: chosen among the heaviest, or by its id.

import { byId, el, toggle } from './dom.js';
import { percent } from './format.js';

const KEY = 'trace_id=';

/** `chosen` are all tags that are; of them, one trace. The list stays as it is while it is open. */
export function showTraces({ answer: { tags, tag_weights: weights, weight } }, chosen, choose) {
  const now = chosen.find((tag) => tag.startsWith(KEY))?.slice(KEY.length);
  const seen = tags.trace_id ?? [];
  const node = byId('trace');
  node.hidden = !seen.length && !now;
  node.classList.toggle('on', Boolean(now));
  node.firstElementChild.textContent = now ? `Trace ${now.slice(0, 8)}…` : 'Trace';
  const others = chosen.filter((tag) => !tag.startsWith(KEY));
  const pick = (id) => {
    node.open = false;
    choose(id && id !== now ? [...others, KEY + id] : others);
  };
  if (node.open) return;
  const enter = ({ key, target }) => { if (key === 'Enter') pick(target.value.trim().toLowerCase()); };
  node.lastElementChild.replaceChildren(
    el('input', { placeholder: 'Trace id', 'aria-label': 'Trace id', value: now ?? '', spellcheck: 'false', onkeydown: enter }),
    ...seen.map((id, i) => {
      const one = toggle(KEY + id, id === now, id, () => pick(id));
      one.append(el('small', { text: ` ${percent(weight ? weights.trace_id[i] / weight : 0)}` }));
      return one;
    }),
  );
}
