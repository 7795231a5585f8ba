// @ts-check
// Fills the page from the data that the C++ side has computed and embedded.
'use strict';

/**
 * @typedef {{span: number, compute: number, exposed_communication: number, exposed_copy: number,
 *            data_wait: number, idle: number, communication: number, overlap: number}} Parts
 * @typedef {{rank: number, whole: Parts, steps: ({step: number} & Parts)[]}} RankParts
 * @typedef {{rank: number, times: number[], bytes: number[][], peak: number, at_peak: number[],
 *            holders: {category: string, holder: string, bytes: number}[]}} RankMemory
 * @typedef {{title: string, subtitle: string, footer: string, facts: [string, string][],
 *            cards: {label: string, value: string, unit: string, note: string, tone: string}[],
 *            warnings: string[], images: {title: string, uri: string}[],
 *            metrics: {steps: number[], columns: {name: string, values: (number|null)[]}[]},
 *            breakdown: RankParts[],
 *            memory: {categories: string[], capacity: number, ranks: RankMemory[]},
 *            timeline: TimelineData}} RunReport
 */

/** @type {[string, string][]} */
const kParts = [['compute', 'compute'], ['exposed communication', 'communication'],
                ['exposed copies', 'copy'], ['data wait', 'data'], ['idle', 'idle']];
/** @param {Parts} p */
const partsOf = (p) => [p.compute, p.exposed_communication, p.exposed_copy, p.data_wait, p.idle];

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

/** @param {RunReport} data */
function showHead(data) {
  byId('title').textContent = data.title;
  byId('subtitle').textContent = data.subtitle;
  byId('footer').textContent = data.footer;
  byId('facts').append(...data.facts.map(([label, value]) =>
    element('div', {}, [element('dt', {}, [label]), element('dd', {}, [value])])));
  byId('cards').append(...data.cards.map((card) => element('div', {class: 'card ' + card.tone}, [
    element('div', {class: 'label'}, [card.label]),
    element('div', {class: 'value'}, [card.value, element('span', {class: 'unit'}, [card.unit])]),
    element('div', {class: 'note'}, [card.note])])));
  byId('warnings').append(...data.warnings.map((text) => element('div', {class: 'warning'}, [text])));
}

/** @param {RunReport['metrics']} metrics */
function showCharts(metrics) {
  if (metrics.steps.length < 2) return;
  const used = new Set(kHidden);
  const colours = ['m0', 'm1', 'm2'];
  const grid = element('div', {class: 'grid'});
  /** A flat line says nothing. @param {(number|null)[]} values */
  const flat = (values) => {
    const known = values.filter((v) => v !== null);
    return known.every((v) => v === known[0]);
  };
  /** @param {string} title @param {string[]} names */
  const chart = (title, names) => {
    const series = metrics.columns.filter((c) => names.includes(c.name) && c.values.some((v) => v !== null))
      .map((c, i) => ({name: c.name, values: c.values, colour: colours[i % 3]}));
    series.forEach((s) => used.add(s.name));
    if (series.length === 0) return;
    const panel = element('div', {class: 'panel'}, [element('h3', {}, [title])]);
    panel.append(lineChart(metrics.steps, series));
    if (series.length > 1) panel.append(legend(series.map((s) => [words(s.name), s.colour])));
    grid.append(panel);
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

/** @param {RankParts[]} ranks */
function showBreakdown(ranks) {
  const shown = ranks.filter((r) => r.whole.span > 0);
  if (shown.length === 0) return;
  const longest = Math.max(...shown.map((r) => r.whole.span));
  const rows = shown.map(({rank, whole}) => {
    const stack = element('div', {class: 'stack', style: `width: ${(100 * whole.span) / longest}%`},
      partsOf(whole).map((part, p) => element('i', {
        style: `width: ${(100 * part) / whole.span}%; background: var(--${kParts[p][1]})`,
        title: `${kParts[p][0]}: ${time(part)}, ${percent(part, whole.span)}`})));
    return element('tr', {}, [
      element('td', {}, ['rank ' + rank]), element('td', {class: 'bar'}, [stack]),
      element('td', {}, [time(whole.span)]),
      ...partsOf(whole).map((part) => element('td', {}, [percent(part, whole.span)])),
      element('td', {}, [percent(whole.overlap, whole.communication)])]);
  });
  const header = ['', '', 'span', 'compute', 'exposed comm.', 'copies', 'data wait', 'idle', 'overlapped'];
  const table = element('table', {}, [
    element('thead', {}, [element('tr', {}, header.map((name) => element('th', {}, [name])))]),
    element('tbody', {}, rows)]);
  const panel = element('div', {class: 'panel'}, [
    element('div', {class: 'scroll'}, [table]), legend(kParts),
    element('p', {class: 'hint'}, ['Each moment counts once, in this order; overlapped is the share of ' +
      'communication that hides behind compute. Exposed communication above 30 % of the step is bad, ' +
      'below 10 % is what good links give.'])]);
  byId('breakdown').append(head('Where the time goes', 'recorded steps, by rank'), panel);
  if (!shown.some((r) => r.steps.length > 1)) return;
  const holder = element('div');
  const draw = (/** @type {number} */ index) => holder.replaceChildren(stackedColumns(
    shown[index].steps.map((s) => ({label: s.step, parts: partsOf(s)})), kParts));
  const choice = chooser(shown.map((r) => 'rank ' + r.rank), draw);
  draw(0);
  const parts = element('div', {class: 'panel'}, [
    element('div', {class: 'head'}, [element('h3', {}, ['By step']), element('div', {class: 'tools'}, [choice])]),
    holder]);
  byId('breakdown').append(element('div', {class: 'grid', style: 'margin-top: 12px'}, [parts, stepTimes(shown)]));
}

/** Step time of every rank: the slow one stands out. @param {RankParts[]} ranks */
function stepTimes(ranks) {
  const first = ranks[0].steps.map((s) => s.step);
  const series = ranks.slice(0, 8).map((r, i) => ({
    name: 'rank ' + r.rank, colour: 'm' + i,
    values: first.map((step) => {
      const found = r.steps.find((s) => s.step === step);
      return found ? found.span / 1e6 : null;
    })}));
  return element('div', {class: 'panel'}, [
    element('div', {class: 'head'}, [
      element('h3', {}, ['Step time (ms)' + (ranks.length > 8 ? ', first 8 ranks' : '')])]),
    lineChart(first, series), legend(series.map((s) => [s.name, s.colour]))]);
}

/** @param {RunReport['memory']} memory */
function showMemory(memory) {
  const shown = memory.ranks.filter((r) => r.peak > 0);
  if (shown.length === 0) return;
  /** @type {[string, string][]} */
  const names = memory.categories.map((name, i) => [name, 'm' + i]);
  const used = names.map((_, c) => shown.some((r) => r.at_peak[c] > 0 || r.bytes.some((b) => b[c] > 0)));
  const kept = names.map((_, i) => i).filter((i) => used[i]);
  const holder = element('div');
  const draw = (/** @type {number} */ index) => {
    const rank = shown[index];
    holder.replaceChildren(rank.times.length > 1 ? memoryChart(rank.times,
      kept.map((c) => rank.bytes.map((b) => b[c])), kept.map((c) => names[c]), memory.capacity) :
      element('p', {}, ['No samples over time were recorded for this rank.']));
  };
  draw(0);
  const tools = shown.length > 1 ? [chooser(shown.map((r) => 'rank ' + r.rank), draw)] : [];
  const table = element('table', {}, [
    element('thead', {}, [element('tr', {}, ['at the peak', ...kept.map((c) => names[c][0]), 'total']
      .map((name) => element('th', {}, [name])))]),
    element('tbody', {}, shown.map((r) => element('tr', {}, [
      element('td', {}, ['rank ' + r.rank]),
      ...kept.map((c) => element('td', {}, [r.at_peak[c] > 0 ? bytes(r.at_peak[c]) : '–'])),
      element('td', {}, [bytes(r.peak)])])))]);
  byId('memory').append(head('Memory', 'by category over the recorded steps; the table has the peaks of the whole run', tools),
    element('div', {class: 'panel'}, [holder, legend(kept.map((c) => names[c])),
      element('div', {class: 'scroll', style: 'margin-top: 12px'}, [table])]));
  const fullest = shown.reduce((a, b) => (b.peak > a.peak ? b : a));
  if (fullest.holders.length === 0) return;
  byId('memory').append(element('div', {class: 'panel scroll', style: 'margin-top: 12px'}, [
    element('h3', {}, [`Largest holders on rank ${fullest.rank} at the end of the run`]), element('table', {}, [
      element('thead', {}, [element('tr', {}, [
        element('th', {}, ['holder']), element('th', {class: 'text'}, ['category']),
        element('th', {}, ['bytes']), element('th', {}, ['of the peak'])])]),
      element('tbody', {}, fullest.holders.slice(0, 8).map((h) => element('tr', {}, [
        element('td', {}, [h.holder]), element('td', {class: 'text'}, [h.category]),
        element('td', {}, [bytes(h.bytes)]), element('td', {}, [percent(h.bytes, fullest.peak)])])))])]));
}

/** @param {TimelineData} data @returns {TimelineView|null} */
function showTimeline(data) {
  if (!data.ranks.some((rank) => rank.spans.start.length > 0)) return null;
  const canvas = /** @type {HTMLCanvasElement} */ (element('canvas', {tabindex: '0', 'aria-label': 'Timeline'}));
  const details = element('div', {class: 'details'});
  const used = new Set(data.ranks.flatMap((rank) => rank.spans.kind.map((kind) => data.kinds[kind])));
  /** @type {[string, string][]} */
  const kinds = data.kinds.filter((kind) => used.has(kind) && kKindColours[kind])
    .map((kind) => [kind, kKindColours[kind]]);
  const button = (/** @type {string} */ text, /** @type {() => void} */ act) => {
    const made = element('button', {type: 'button'}, [text]);
    made.addEventListener('click', act);
    return made;
  };
  const view = new TimelineView(canvas, details, data);
  byId('timeline').append(
    head('Timeline', 'wheel zooms, drag pans, click shows a span; keys W S A D and 0', [
      button('−', () => view.zoom(1.6)), button('+', () => view.zoom(1 / 1.6)),
      button('All', () => view.show(0, data.end))]),
    element('div', {class: 'panel'}, [canvas, details, legend(kinds)]));
  const steps = data.ranks[0].steps;
  if (steps.length > 2) view.show(steps[1].start, steps[1].start + steps[1].dur * 1.02);
  view.select(null);
  return view;
}

/** @param {RunReport['images']} images */
function showSamples(images) {
  if (images.length === 0) return;
  byId('samples').append(head('Samples', 'what the model made'),
    element('div', {class: 'panel images'}, images.map((image) => element('figure', {}, [
      element('img', {src: image.uri, alt: image.title}), element('figcaption', {}, [image.title])]))));
}

function start() {
  const root = document.documentElement;
  const dark = matchMedia('(prefers-color-scheme: dark)').matches;
  root.dataset.theme = location.hash === '#dark' || (dark && location.hash !== '#light') ? 'dark' : 'light';
  const data = /** @type {RunReport} */ (JSON.parse(byId('data').textContent || '{}'));
  showHead(data);
  showCharts(data.metrics);
  showBreakdown(data.breakdown);
  const view = showTimeline(data.timeline);
  showMemory(data.memory);
  showSamples(data.images);
  byId('theme').addEventListener('click', () => {
    root.dataset.theme = root.dataset.theme === 'dark' ? 'light' : 'dark';
    if (view) view.draw();
  });
}

start();
