// The bar at the foot: all about the frame that is pointed at, at once. It keeps the last, so that the full name can be
// selected.

import { colour, isDark, KINDS, LEGEND } from './colours.js';
import { byId, el } from './dom.js';
import { percent } from './format.js';

/** A frame (-1: the root) that holds `total`, `self` of it its own; `within` is the total of the zoomed node. */
export function showDetails(profile, frame, { total, self, within, note }) {
  const { names, files, packages, frames, kinds, weight } = profile;
  const known = frame >= 0;
  byId('d-name').textContent = known ? names[frames.name[frame]] : 'all';
  byId('d-total').textContent = profile.figures(total);
  byId('d-more').textContent = [
    profile.cores(total), known && `self ${profile.worth(self)} · ${percent(profile.share(self))}`,
    within !== weight && `${percent(total / within)} of the zoom`, note,
  ].filter(Boolean).join('   ');
  const file = known && files[frames.file[frame]];
  const swatch = el('i');
  if (known) swatch.style.background = colour(kinds[frame], packages[frame], isDark());
  byId('d-place').replaceChildren(...(known ? [swatch, [
    `${packages[frame]} (${LEGEND[KINDS[kinds[frame]]]})`, file && file !== '?' && `${file}${frames.line[frame] ? `:${frames.line[frame]}` : ''}`, frames.inlined[frame] && 'inlined',
  ].filter(Boolean).join('   ')] : []));
}
