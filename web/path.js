// @ts-check
// What bounds the steps and what would make them shorter, by rank.
import {byId, chooser, element, head, percent, time} from './format.js';
import {sortableTable} from './table.js';

/** @typedef {import('./data.js').Path} Path @typedef {import('./data.js').WhatIf} WhatIf */

/** @param {import('./data.js').Page} data */
export function showPaths(data) {
  const paths = data.job ? data.job.paths : [];
  if (paths.length === 0) return;
  const section = byId('shorter');
  const panel = element('div', {class: 'panel'});
  const draw = (/** @type {Path} */ path) => panel.replaceChildren(...body(path));
  const names = paths.map((path) => String(path.rank));
  const title = paths[0].per_step ? 'What would make the step shorter' : 'What would make it shorter';
  const tools = [];
  if (paths.length > 1) tools.push(chooser(names, (index) => draw(paths[index])));
  section.append(head(title, 'one part made faster, everything else as it was', tools), panel);
  draw(paths[0]);
}

/** @param {Path} path */
function body(path) {
  const known = path.what_if.filter((one) => one.step !== null);
  const unknown = path.what_if.filter((one) => one.step === null);
  const then = (/** @type {WhatIf} */ one) => one.step ?? path.step;
  const parts = [...path.parts].sort((a, b) => b[1] - a[1]);
  const table = sortableTable(known, [
    {title: 'change', value: (one) => one.change},
    {title: path.per_step ? 'the step would take' : 'it would take', value: then, text: (one) => time(then(one))},
    {title: 'shorter by', value: (one) => path.step - then(one), bar: (one) => 1 - then(one) / path.step,
      text: (one) => percent(path.step - then(one), path.step)},
    {title: 'speed-up', value: (one) => path.step / Math.max(then(one), 1),
      text: (one) => (then(one) > 0 ? (path.step / then(one)).toFixed(2) + '×' : '–')},
  ], {sort: 2});
  return [
    element('p', {}, [`Rank ${path.rank}, ${path.window}: ${time(path.step)}${path.per_step ? ' a step' : ''}. Its critical path: ` +
      parts.map(([name, ns]) => `${name} ${time(ns)} (${percent(ns, path.step)})`).join(', ') + '.']),
    table,
    ...(unknown.length ? [element('p', {class: 'hint'}, ['Not known: ' +
      unknown.map((one) => `${one.change} (${one.unknown})`).join(', ') + '.'])] : []),
    ...(path.inferred.length ? [element('p', {class: 'hint'}, ['Inferred: ' + path.inferred.join('; ') + '.'])] : [])];
}
