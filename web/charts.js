// @ts-check
// Charts by uPlot: lines over steps, stacked columns over steps, stacked areas over time.
import uPlot from 'uplot';
import {bytes, colour, element, number, time} from './format.js';

/** @type {{holder: HTMLElement, build: () => uPlot, chart: uPlot|null}[]} */
const drawn = [];

/** Charts take their colours when they are made. */
export function recolourCharts() {
  for (const entry of drawn) {
    if (!entry.holder.isConnected || !entry.chart) continue;
    entry.chart.destroy();
    entry.chart = entry.build();
  }
}

/**
 * Makes the chart once its holder is on the page and has a width, and keeps it as wide.
 * @param {HTMLElement} holder @param {(width: number) => uPlot.Options} options
 * @param {uPlot.AlignedData} data
 */
function place(holder, options, data) {
  const width = () => Math.max(200, holder.clientWidth);
  const entry = {
    holder, chart: /** @type {uPlot|null} */ (null),
    build: () => new uPlot(options(width()), data, holder),
  };
  drawn.push(entry);
  new ResizeObserver(() => {
    if (!holder.isConnected || holder.clientWidth === 0) return;
    if (!entry.chart) entry.chart = entry.build();
    else if (entry.chart.width !== width()) entry.chart.setSize({width: width(), height: entry.chart.height});
  }).observe(holder);
  return holder;
}

/**
 * A fill that can be told from others without its colour.
 * @param {string} name CSS variable @param {string} [pattern] 'hatch' or 'dots'
 * @returns {string|CanvasPattern}
 */
function fill(name, pattern) {
  const base = colour(name);
  if (!pattern) return base;
  const tile = document.createElement('canvas');
  tile.width = tile.height = 8;
  const c = tile.getContext('2d');
  if (!c) return base;
  c.fillStyle = base;
  c.fillRect(0, 0, 8, 8);
  c.strokeStyle = c.fillStyle = colour('panel');
  c.globalAlpha = 0.65;
  if (pattern === 'hatch') {
    c.lineWidth = 1.5;
    c.beginPath();
    for (const at of [-8, 0, 8]) {
      c.moveTo(at, 8);
      c.lineTo(at + 8, 0);
    }
    c.stroke();
  } else {
    c.fillRect(1, 1, 2, 2);
    c.fillRect(5, 5, 2, 2);
  }
  return c.createPattern(tile, 'repeat') || base;
}

/** Round values in powers of 1024. @param {number} high */
function byteTicks(high) {
  const unit = 1024 ** Math.min(4, Math.max(0, Math.floor(Math.log2(Math.max(1, high)) / 10)));
  const raw = high / unit / 4;
  const power = 10 ** Math.floor(Math.log10(raw || 1));
  const step = ([1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= raw) || raw) * unit;
  const out = [];
  for (let t = 0; t <= high * 1.0001; t += step) out.push(t);
  return out;
}

/** @param {(value: number) => string} text @param {number} [size] @returns {uPlot.Axis} */
function axis(text, size) {
  const made = /** @type {uPlot.Axis} */ ({
    stroke: () => colour('soft'), font: '11px system-ui, "DejaVu Sans", sans-serif',
    grid: {stroke: () => colour('grid'), width: 1}, ticks: {show: false}, gap: 6,
    values: (_, splits) => splits.map((v) => (v === null ? '' : text(v))),
  });
  if (size) made.size = size;
  return made;
}

/** Ticks of steps are whole. */
const kWholeSteps = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6, 1e7];

const kDashes = [[], [6, 3], [2, 3], [8, 3, 2, 3]];

/**
 * @param {number[]} x
 * @param {{name: string, values: (number|null)[], colour: string}[]} series
 * @param {{xLabel?: string, xText?: (v: number) => string, yText?: (v: number) => string, height?: number,
 *   zero?: boolean}} [options]
 */
export function lineChart(x, series, options = {}) {
  const yText = options.yText || number;
  const xText = options.xText || ((v) => (Number.isInteger(v) ? String(v) : ''));
  /** @param {uPlot} _ @param {number} low @param {number} high @returns {[number, number]} */
  const range = (_, low, high) => {
    if (options.zero || (low > 0 && low < high * 0.5)) low = 0;
    const room = (high - low || Math.abs(high) || 1) * 0.06;
    return [low === 0 ? 0 : low - room, high + room];
  };
  return place(element('div', {class: 'chart'}), (width) => ({
    width, height: options.height || 200, scales: {x: {time: false}, y: {range}},
    cursor: {points: {size: 7}, drag: {x: true, y: false}},
    legend: {live: true},
    axes: [{...axis(xText, 30), incrs: kWholeSteps}, axis(yText, 62)],
    series: [
      {label: options.xLabel || 'step', value: (_, v) => (v === null ? '–' : xText(v))},
      ...series.map((s, i) => ({
        label: s.name, stroke: colour(s.colour), width: 1.75, dash: kDashes[i % 4], spanGaps: true,
        points: {show: x.length < 40, size: 5},
        value: (/** @type {uPlot} */ _, /** @type {number|null} */ v) => (v === null || v === undefined ? '–' : yText(v)),
      }))],
  }), [x, ...series.map((s) => s.values)]);
}

/**
 * Stacked columns, one a step.
 * @param {string[]} labels
 * @param {{name: string, colour: string, pattern?: string, values: number[]}[]} parts lowest first
 * @param {(index: number) => void} [clicked]
 */
export function stackedColumns(labels, parts, clicked) {
  const sums = stacked(parts.map((p) => p.values), labels.length);
  // The highest sum is drawn first and the lower ones over it.
  const order = parts.map((_, i) => i).reverse();
  const bars = uPlot.paths.bars && uPlot.paths.bars({size: [0.72, 46]});
  const holder = place(element('div', {class: 'chart'}), (width) => ({
    width, height: 220,
    scales: {x: {time: false, range: [-0.6, labels.length - 0.4]}, y: {range: (_, __, high) => [0, (high || 1) * 1.05]}},
    cursor: {points: {show: false}, drag: {x: false, y: false}},
    legend: {markers: {fill: (_, i) => (i > 0 ? colour(parts[order[i - 1]].colour) : '')}},
    axes: [
      {...axis((v) => (Number.isInteger(v) ? labels[v] ?? '' : ''), 30), grid: {show: false}},
      axis((v) => time(v), 62)],
    series: [
      {label: 'step', value: (_, v) => (v === null ? '–' : labels[v] ?? '–')},
      ...order.map((p) => ({
        label: parts[p].name, fill: () => fill(parts[p].colour, parts[p].pattern), stroke: colour(parts[p].colour),
        width: 0, paths: bars, points: {show: false},
        value: (/** @type {uPlot} */ _, /** @type {number|null} */ __, /** @type {number} */ ___,
          /** @type {number|null} */ i) => (i === null || i === undefined ? '–' : time(parts[p].values[i])),
      }))],
  }), [labels.map((_, i) => i), ...order.map((p) => sums[p])]);
  if (clicked) {
    holder.classList.add('clickable');
    holder.addEventListener('click', () => {
      const chart = drawn.find((entry) => entry.holder === holder)?.chart;
      if (chart && chart.cursor.idx !== null && chart.cursor.idx !== undefined) clicked(chart.cursor.idx);
    });
  }
  return holder;
}

/** @param {number[][]} layers @param {number} count */
function stacked(layers, count) {
  let below = new Array(count).fill(0);
  return layers.map((layer) => {
    below = below.map((sum, i) => sum + (layer[i] || 0));
    return below;
  });
}

/**
 * Stacked areas over time, in steps: memory stays as it is until the next sample.
 * @param {number[]} times ns
 * @param {{name: string, colour: string, pattern?: string, values: number[]}[]} layers lowest first
 * @param {{capacity: number, reserved: number[]}} lines 0, [] = not known
 */
export function memoryChart(times, layers, lines) {
  const sums = stacked(layers.map((l) => l.values), times.length);
  const order = layers.map((_, i) => i).reverse();
  const top = Math.max(1, ...[...(sums[sums.length - 1] || []), ...lines.reserved].reduce(
    (/** @type {number[]} */ most, v) => (v > most[0] ? [v] : most), [1]));
  // A capacity far above the curve would press it flat: then the legend alone says it.
  const capacity = lines.capacity > 0 && top > lines.capacity / 3 ? lines.capacity : 0;
  const high = Math.max(top, capacity) * 1.06;
  const steps = uPlot.paths.stepped && uPlot.paths.stepped({align: 1});
  /** @type {uPlot.Series[]} */
  const series = [
    {label: 'time', value: (_, v) => (v === null ? '–' : time(v, 4))},
    ...order.map((l) => /** @type {uPlot.Series} */ ({
      label: layers[l].name, fill: () => fill(layers[l].colour, layers[l].pattern), stroke: colour(layers[l].colour),
      width: 0, paths: steps, points: {show: false},
      value: (_, __, ___, i) => (i === null || i === undefined ? '–' : bytes(layers[l].values[i])),
    }))];
  const data = [times, ...order.map((l) => sums[l])];
  const line = (/** @type {string} */ label, /** @type {string} */ stroke, /** @type {number[]} */ values,
    /** @type {number[]} */ dash) => {
    series.push({label, stroke: colour(stroke), width: 1.5, dash, paths: steps, points: {show: false},
                 value: (_, v) => (v === null || v === undefined ? '–' : bytes(v))});
    data.push(values);
  };
  if (lines.reserved.length === times.length) line('reserved', 'ink', lines.reserved, [4, 3]);
  if (capacity > 0) line('capacity', 'bad', times.map(() => capacity), [8, 4]);
  return place(element('div', {class: 'chart'}), (width) => ({
    width, height: 260,
    scales: {x: {time: false}, y: {range: [0, high]}},
    cursor: {points: {show: false}, drag: {x: true, y: false}},
    legend: {markers: {fill: (_, i) => (i > 0 && i <= order.length ? colour(layers[order[i - 1]].colour) : '')}},
    axes: [axis((v) => time(v, 4), 30), {...axis(bytes, 74), splits: () => byteTicks(high)}],
    series,
  }), /** @type {uPlot.AlignedData} */ (data));
}
