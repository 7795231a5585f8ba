// @ts-check
// Curves and pictures of Vitrine's own runs.
import {lineChart} from './charts.js';
import {byId, element, head, number} from './format.js';

// Charts that come first, each with the names of its curves; every other column follows by itself.
/** @type {[string, string[]][]} */
const kCharts = [
  ['Loss', ['loss', 'eval_loss', 'validation_loss']], ['Learning rate', ['lr', 'learning_rate']],
  ['Gradient norm', ['grad_norm']],
];
const kHidden = ['time', 'step_seconds'];  // the latter is what throughput says
// A unit's throughput comes with the charts above, whatever the unit.
const kThroughput = /^(.*)_per_second$/;

/** @type {Object<string, string>} */
const kWords = {comm_share: 'exposed communication (share of the step)'};

/** @param {string} name */
function words(name) {
  const text = (kWords[name] || name).replace(/_seconds$/, ' (s)').replace(/_bytes$/, ' (bytes)').replace(/_/g, ' ');
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** @param {import('./data.js').Metrics} metrics */
export function showCurves(metrics) {
  if (metrics.steps.length < 2) return;
  const used = new Set(kHidden);
  const grid = element('div', {class: 'grid'});
  /** A flat line says nothing. @param {(number|null)[]} values */
  const flat = (values) => {
    const known = values.filter((v) => v !== null);
    return known.every((v) => v === known[0]);
  };
  /** @param {string} title @param {string[]} names */
  const chart = (title, names) => {
    const series = metrics.columns.filter((c) => names.includes(c.name) && c.values.some((v) => v !== null))
      .map((c, i) => ({name: words(c.name), values: c.values, colour: 'm' + (i % 3), column: c.name}));
    series.forEach((s) => used.add(s.column));
    if (series.length === 0) return;
    grid.append(element('div', {class: 'panel'}, [element('h3', {}, [title]), lineChart(metrics.steps, series, {yText: number})]));
  };
  for (const [title, names] of kCharts) chart(title, names);
  for (const {name} of metrics.columns) {
    const unit = kThroughput.exec(name);
    if (unit) chart(`Throughput (${unit[1]} / s)`, [name]);
  }
  for (const column of metrics.columns) {
    if (!used.has(column.name) && !flat(column.values)) chart(words(column.name), [column.name]);
  }
  byId('charts').append(head('Training', `${metrics.steps.length} steps in metrics.jsonl`), grid);
}

/** @param {import('./data.js').Page['images']} images */
export function showSamples(images) {
  if (images.length === 0) return;
  byId('samples').append(head('Samples', 'what the model made'),
    element('div', {class: 'panel images'}, images.map((image) => element('figure', {}, [
      element('img', {src: image.uri, alt: image.title}), element('figcaption', {}, [image.title])]))));
}
