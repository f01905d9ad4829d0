// The bar at the foot: all about the frame that is pointed at, at once. It keeps the last, so that a full name can be
// selected.

import { KINDS } from './colours.js';
import { byId, swatch } from './dom.js';
import { percent } from './format.js';

/** A frame (-1: the root) that holds `total`, `self` of it its own; `within` is the total of the zoomed node. */
export function showDetails(profile, frame, { total, self, within, note }) {
  const { names, files, packages, frames, kinds, weight, worth, share } = profile;
  const known = frame >= 0;
  const file = known && files[frames.file[frame]];
  const texts = {
    'd-name': [known ? names[frames.name[frame]] : 'all'],
    'd-total': [profile.figures(total)],
    'd-more': [
      profile.rate(total), known && `self ${worth(self)} · ${percent(share(self))}`,
      within !== weight && within !== total && `${percent(total / within)} of the zoom`, note,
    ],
    'd-place': known ? [
      `${packages[frame]} (${KINDS[kinds[frame]][1]})`,
      file && file !== '?' && [file, frames.line[frame] || []].flat().join(':'), frames.inlined[frame] && 'inlined',
    ] : [],
  };
  for (const [id, parts] of Object.entries(texts)) byId(id).textContent = parts.filter(Boolean).join('   ');
  if (known) byId('d-place').prepend(swatch(kinds[frame], packages[frame]));
}
