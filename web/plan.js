// @ts-check
// A prediction: memory by category and stage, the step's parts, speed against memory.
import {byId, bytes, element, head, percent, plainTable, time, tip} from './format.js';

/** @typedef {import('./data.js').Plan} Plan */
/** @typedef {{name: string, colour: string, value: number}} Piece */

/** Strategies shown before the rest is folded. */
const kRows = 12;
const kSvg = 'http://www.w3.org/2000/svg';

/** @param {import('./data.js').Page} data */
export function showPlan(data) {
  if (!data.plan || !data.plan.prediction) return;
  const {plan} = data;
  byId('plan').append(
    head('Memory of a card', 'at the peak of each pipeline stage, by category'), memoryPanel(plan),
    head('Predicted step', time(plan.prediction.step_ns) +
      (plan.prediction.memory.stages.length > 1 ? `, as stage ${plan.prediction.bounding_stage} spends it` : '')), stepPanel(plan),
    head('Speed against memory', plan.search ? 'each is the fastest strategy that needs no more memory'
      : 'this strategy, and its nearest changes'), speedPanel(plan));
}

/** @param {Piece[]} pieces @param {number} span @param {(value: number) => string} text */
function bar(pieces, span, text) {
  return element('div', {class: 'stack'}, pieces.filter((p) => p.value > 0).map((p) => {
    const piece = element('i', {title: `${p.name}: ${text(p.value)}`});
    piece.style.width = (100 * p.value) / span + '%';
    piece.style.background = `var(--${p.colour})`;
    return piece;
  }));
}

/** @param {{name: string, colour: string}[]} entries */
function swatches(entries) {
  return element('div', {class: 'legend'}, entries.map(({name, colour}) => {
    const swatch = element('i');
    swatch.style.background = `var(--${colour})`;
    return element('span', {}, [swatch, name]);
  }));
}

/** @param {Plan} plan */
function memoryPanel(plan) {
  const {stages, capacity_bytes: capacity, fullest_stage: fullest} = plan.prediction.memory;
  const names = Object.keys(stages[0].by_category_bytes);
  const pieces = stages.map((s) => [
    ...names.map((name, i) => ({name, colour: 'm' + i, value: s.by_category_bytes[name]})),
    {name: 'context and communicators', colour: 'm8', value: s.context_bytes},
    {name: 'fragmentation', colour: 'host', value: s.fragmentation_bytes}]);
  const span = Math.max(capacity, ...stages.map((s) => s.total_bytes));
  const rows = stages.map((s, i) => element('div', {class: 'bar-row plan-row' + (i === fullest ? ' fullest' : '')}, [
    element('span', {}, [stages.length > 1 ? 'stage ' + i : 'a card']), bar(pieces[i], span, bytes),
    element('span', {}, [bytes(s.total_bytes)])]));
  const limit = element('div', {class: 'bar-row plan-row'}, [
    element('span', {}, ['capacity']), bar([{name: 'capacity', colour: 'line', value: capacity}], span, bytes),
    element('span', {}, [bytes(capacity)])]);
  const used = pieces[fullest].filter((p) => pieces.some((all) => all.some((q) => q.name === p.name && q.value > 0)));
  return element('div', {class: 'panel'}, [...rows, limit, swatches(used),
    element('p', {class: 'hint'}, [`Fullest: ${stages.length > 1 ? 'stage ' + fullest + ', ' : ''}` +
      `${bytes(stages[fullest].total_bytes)} of ${bytes(capacity)} (${percent(stages[fullest].total_bytes, capacity)}), ` +
      `in the ${stages[fullest].peak_moment}.`])]);
}

const kPartColours = ['compute', 'communication', 'gather', 'optimizer', 'copy', 'forward', 'data', 'region', 'runtime',
  'p2p', 'sync', 'operation'];

/** @param {Plan} plan */
function stepPanel(plan) {
  const {step_ns: step, step_parts_ns: parts} = plan.prediction;
  const pieces = Object.entries(parts).map(([name, value], i) => ({
    name, value, colour: name === 'pipeline bubble' ? 'idle' : kPartColours[i % kPartColours.length]}));
  const wide = bar(pieces, step, (ns) => `${time(ns)}, ${percent(ns, step)}`);
  wide.style.height = '26px';
  return element('div', {class: 'panel'}, [wide, swatches(pieces.filter((p) => p.value > 0.005 * step)),
    plainTable(['part', 'time', 'of the step'], pieces.map((p) => [p.name, time(p.value), percent(p.value, step)]), 'plan'),
    element('p', {class: 'hint'}, [plan.limit])]);
}

/** @typedef {{x: number, y: number, text: string, kind: string}} Point step time, memory */

/** @param {Plan} plan */
function points(plan) {
  const {memory} = plan.prediction;
  /** @type {Point[]} */
  const all = [];
  if (plan.search) {
    for (const c of plan.search.pareto) {
      if (c.step_ns) all.push({x: c.step_ns, y: c.memory_bytes, text: c.description, kind: 'm0'});
    }
  } else {
    for (const c of plan.changes) all.push({x: c.step_ns, y: c.memory_bytes, text: c.what, kind: 'm4'});
  }
  all.push({x: plan.prediction.step_ns, y: memory.stages[memory.fullest_stage].total_bytes, text: plan.description,
            kind: 'bad'});
  return all;
}

/** @param {string} name @param {Object<string, string|number>} attributes @param {string} [text] */
function svg(name, attributes, text) {
  const made = document.createElementNS(kSvg, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, String(value));
  if (text !== undefined) made.textContent = text;
  return made;
}

/** @param {Plan} plan */
function speedPanel(plan) {
  const all = points(plan);
  const [width, height, left, bottom] = [900, 300, 74, 34];
  const high = 1.08 * Math.max(...all.map((p) => p.y));
  const [from, to] = [Math.min(...all.map((p) => p.x)), Math.max(...all.map((p) => p.x))];
  const room = 0.06 * (to - from || from);
  const x = (/** @type {number} */ v) => left + ((v - from + room) / (to - from + 2 * room)) * (width - left - 12);
  const y = (/** @type {number} */ v) => (height - bottom) * (1 - v / high) + 4;
  const chart = svg('svg', {viewBox: `0 0 ${width} ${height}`, class: 'scatter', role: 'img',
                            'aria-label': 'step time against memory of the fullest card'});
  const unit = 2 ** 30 * Math.max(1, 2 ** Math.ceil(Math.log2(high / 2 ** 30 / 6)));
  for (let v = 0; v <= high; v += unit) {
    chart.append(svg('line', {x1: left, x2: width - 12, y1: y(v), y2: y(v), class: 'rule'}),
                 svg('text', {x: left - 8, y: y(v) + 4, 'text-anchor': 'end'}, bytes(v)));
  }
  for (let i = 0; i <= 5; ++i) {
    const v = from + ((to - from) * i) / 5;
    if (i > 0 && to === from) break;
    chart.append(svg('text', {x: x(v), y: height - 10, 'text-anchor': 'middle'}, time(v)));
  }
  const {capacity_bytes: capacity} = plan.prediction.memory;
  if (capacity <= high) {
    chart.append(svg('line', {x1: left, x2: width - 12, y1: y(capacity), y2: y(capacity), class: 'capacity'}));
  }
  const line = all.filter((p) => p.kind === 'm0').sort((a, b) => a.x - b.x);
  if (line.length > 1) {
    chart.append(svg('path', {d: line.map((p, i) => (i ? `H${x(p.x)}V${y(p.y)}` : `M${x(p.x)} ${y(p.y)}`)).join(''),
                              class: 'front'}));
  }
  for (const p of all) {
    const dot = svg('circle', {cx: x(p.x), cy: y(p.y), r: p.kind === 'bad' ? 6 : 4.5, fill: `var(--${p.kind})`});
    const text = `${p.text}: step ${time(p.x)}, ${bytes(p.y)}`;
    dot.append(svg('title', {}, text));
    dot.addEventListener('mousemove', (e) => tip.show(/** @type {MouseEvent} */ (e), text));
    dot.addEventListener('mouseleave', () => tip.hide());
    chart.append(dot);
  }
  // The strategy itself is on the list already when it is a search's best.
  const listed = plan.search ? all.filter((p) => p.kind !== 'bad') : all;
  const rows = [...listed].sort((a, b) => a.x - b.x).map((p) => [time(p.x), bytes(p.y), p.text]);
  return element('div', {class: 'panel'}, [chart,
    swatches([{name: 'shown above', colour: 'bad'}, plan.search ? {name: 'fastest for its memory', colour: 'm0'}
      : {name: 'one change away', colour: 'm4'}]),
    plainTable(['step', 'memory', 'strategy'], rows.slice(0, kRows), 'plan-rows'), ...(rows.length > kRows
      ? [element('details', {}, [element('summary', {}, [`${rows.length - kRows} more`]),
                                 plainTable(['step', 'memory', 'strategy'], rows.slice(kRows), 'plan-rows')])] : [])]);
}
