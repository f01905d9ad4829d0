// The bar at the foot: everything about the frame that is pointed at, at once. It keeps the last one, so that its full
// name can be selected.

import { byId, el } from './dom.js';
import { KINDS, LEGEND } from './colours.js';
import { cores, count, error, percent, samples, time } from './format.js';

/** `412 ms · 5.0 % ± 0.7 · 41 samples`. */
export function figures({ weight, perSample, evidence }, value) {
  const p = weight ? value / weight : 0;
  return [perSample ? time(value * perSample) : count(value), `${percent(p)} ± ${error(p, evidence)}`, samples(value)].join(' · ');
}

/** Shows a frame that holds `total`, `self` of it its own; `within` is the total of the zoomed node. */
export function showDetails(profile, frame, { total, self, within, what }) {
  const { names, files, packages, frames, kinds, answer, perSample, weight } = profile;
  const all = frame < 0;
  byId('d-name').textContent = all ? 'all' : names[frames.name[frame]];
  byId('d-total').textContent = figures(profile, total);
  const more = [
    perSample ? cores(total * perSample, answer.duration_ms) : null,
    all ? null : `self ${perSample ? time(self * perSample) : count(self)} · ${percent(weight ? self / weight : 0)}`,
    within && within !== weight ? `${percent(total / within)} of the zoom` : null,
  ].filter(Boolean);
  byId('d-more').textContent = more.join('   ');
  const file = all ? '' : files[frames.file[frame]];
  const place = all ? '' : [
    file && file !== '?' ? `${file}${frames.line[frame] ? `:${frames.line[frame]}` : ''}` : '',
    `${packages[frames.package[frame]] || '?'} (${LEGEND.find(([kind]) => kind === kinds[frame])[1]})`,
    frames.inlined[frame] ? 'inlined' : '', what ?? '',
  ].filter(Boolean).join('   ');
  byId('d-place').replaceChildren(...(all ? [] : [el('i', { class: `swatch k-${KINDS[kinds[frame]]}` }), place]));
}
