// Whose samples are shown: those of all processes, of one service, or of one process. Shown only where there are several.

import { byId, el, refill } from './dom.js';

/** Fills the choice with the `targets` that there are and the one that is chosen; `choose` gets what changes in the view. */
export function showProcesses(targets, { service, pid }, choose) {
  const list = targets.map((target) => [target.service, String(target.pid), target.language]);
  if ((service || pid) && !list.some(([name, id]) => (!service || name === service) && (!pid || id === pid))) {
    list.push([service, pid, 'gone']);
  }
  byId('process').hidden = list.length < 2 && !service && !pid;
  byId('process').onchange = ({ target: { value } }) => {
    const [name, id] = JSON.parse(value);
    choose({ service: name, pid: id, path: [], whole: true });
  };
  refill(byId('process'), [list, service, pid], () => options(list, service, pid));
}

function options(list, service, pid) {
  const option = (name, id, text) =>
    el('option', { value: JSON.stringify([name, id]), selected: name === service && id === pid ? '' : null, text });
  const services = [...new Set(list.map(([name]) => name))].filter(Boolean).sort();
  const several = services.filter((name) => list.filter(([other]) => other === name).length > 1);
  const known = (name, id) => list.filter((one) => one[0] === name && one[1] === id);
  const given = service && !pid && !several.includes(service) ? [option(service, '', service)] : [];
  return [
    option('', '', `All ${list.length} processes`), ...given,
    ...several.map((name) => option(name, '', `${name} · all`)),
    ...list.map(([name, id, language]) => option(name, id, [name, id && `pid ${id}`, language].filter(Boolean).join(' · '))),
    ...(pid && !known(service, pid).length ? [option(service, pid, `pid ${pid}`)] : []),
  ];
}
