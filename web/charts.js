// @ts-check
// Charts as SVG: lines over steps, stacked columns over steps, stacked areas over time.
'use strict';

const kChart = {width: 600, height: 220, left: 62, right: 12, top: 10, bottom: 24};

/** @param {string} tag @param {Object<string, string|number>} attributes @param {string} [text] */
function svg(tag, attributes, text) {
  const made = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, String(value));
  if (text !== undefined) made.textContent = text;
  return made;
}

/** Round tick values that cover [low, high]. @param {number} low @param {number} high @param {number} count */
function ticks(low, high, count) {
  if (!(high > low)) return [low];
  const raw = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= raw) || raw;
  const out = [];
  for (let t = Math.ceil(low / step - 1e-9) * step; t <= high + step * 1e-6; t += step) out.push(t);
  return out;
}

/**
 * The frame of a chart: axes, grid, and the maps from values to pixels.
 * @param {{x: [number, number], y: [number, number], xLabel: string, xText?: (v: number) => string,
 *          yText: (v: number) => string, width?: number, height?: number, yTicks?: number[]}} o
 */
function frame(o) {
  const size = {...kChart, width: o.width || kChart.width, height: o.height || kChart.height};
  const root = svg('svg', {viewBox: `0 0 ${size.width} ${size.height}`, role: 'img'});
  const inner = {width: size.width - size.left - size.right, height: size.height - size.top - size.bottom};
  const xSpan = o.x[1] - o.x[0] || 1;
  const ySpan = o.y[1] - o.y[0] || 1;
  const x = (/** @type {number} */ v) => size.left + ((v - o.x[0]) / xSpan) * inner.width;
  const y = (/** @type {number} */ v) => size.top + inner.height - ((v - o.y[0]) / ySpan) * inner.height;
  for (const t of o.yTicks || ticks(o.y[0], o.y[1], 4)) {
    root.append(svg('line', {class: 'gridline', x1: size.left, x2: size.width - size.right, y1: y(t), y2: y(t)}));
    root.append(svg('text', {x: size.left - 8, y: y(t) + 4, 'text-anchor': 'end'}, o.yText(t)));
  }
  const bottom = size.top + inner.height;
  root.append(svg('line', {class: 'axis', x1: size.left, x2: size.width - size.right, y1: bottom, y2: bottom}));
  for (const t of ticks(o.x[0], o.x[1], 6)) {
    root.append(svg('text', {x: x(t), y: bottom + 15, 'text-anchor': 'middle'}, (o.xText || number)(t)));
  }
  root.append(svg('text', {x: 4, y: bottom + 15}, o.xLabel));
  /** @param {(x: number) => {at: number, text: string}|null} describe */
  const hover = (describe) => {
    const cursor = svg('line', {class: 'cursor', y1: size.top, y2: bottom, visibility: 'hidden'});
    root.append(cursor);
    root.addEventListener('mousemove', (event) => {
      const box = root.getBoundingClientRect();
      const px = ((event.clientX - box.left) / box.width) * size.width;
      const found = describe(o.x[0] + ((px - size.left) / inner.width) * xSpan);
      if (!found) return;
      cursor.setAttribute('x1', String(x(found.at)));
      cursor.setAttribute('x2', String(x(found.at)));
      cursor.setAttribute('visibility', 'visible');
      tip.show(event, found.text);
    });
    root.addEventListener('mouseleave', () => {
      cursor.setAttribute('visibility', 'hidden');
      tip.hide();
    });
  };
  return {root, x, y, hover};
}

/** @param {number[]} sorted @param {number} value */
function nearest(sorted, value) {
  let low = 0;
  let high = sorted.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < value) low = middle;
    else high = middle;
  }
  return Math.abs(sorted[low] - value) <= Math.abs(sorted[high] - value) ? low : high;
}

/**
 * @param {number[]} steps
 * @param {{name: string, values: (number|null)[], colour: string}[]} series
 */
function lineChart(steps, series) {
  const shown = series.flatMap((s) => s.values.filter((v) => v !== null));
  let low = Math.min(...shown.map(Number));
  let high = Math.max(...shown.map(Number));
  if (low > 0 && low < high * 0.5) low = 0;
  if (low === high) high = low + (Math.abs(low) || 1);
  high += (high - low) * 0.05;
  const f = frame({x: [steps[0], steps[steps.length - 1]], y: [low, high], xLabel: 'step',
                   xText: (v) => (Number.isInteger(v) ? number(v) : ''), yText: number});
  for (const s of series) {
    let path = '';
    let pen = 'M';
    s.values.forEach((value, i) => {
      if (value === null) {
        // A value that is only sometimes there (evaluation) is joined over the gap; NaN shows as a gap
        // only when its neighbours are dense.
        return;
      }
      path += `${pen}${f.x(steps[i]).toFixed(1)} ${f.y(value).toFixed(1)}`;
      pen = 'L';
    });
    f.root.append(svg('path', {d: path, fill: 'none', stroke: `var(--${s.colour})`, 'stroke-width': 1.75,
                               'stroke-linejoin': 'round'}));
  }
  f.hover((value) => {
    const i = nearest(steps, value);
    const lines = series.filter((s) => s.values[i] !== null)
      .map((s) => `${s.name}  ${number(Number(s.values[i]))}`);
    return {at: steps[i], text: [`step ${steps[i]}`, ...lines].join('\n')};
  });
  return f.root;
}

/**
 * Stacked columns, one a step.
 * @param {{label: number, parts: number[]}[]} columns
 * @param {[string, string][]} parts name and colour
 */
function stackedColumns(columns, parts) {
  const sums = columns.map((c) => c.parts.reduce((a, b) => a + b, 0));
  const f = frame({x: [-0.5, columns.length - 0.5], y: [0, Math.max(...sums) * 1.05], xLabel: 'step',
                   xText: (v) => (Number.isInteger(v) && columns[v] ? String(columns[v].label) : ''),
                   yText: (v) => time(v)});
  const wide = Math.max(1, Math.min(46, (f.x(1) - f.x(0)) * 0.72));
  columns.forEach((column, i) => {
    let below = 0;
    column.parts.forEach((part, p) => {
      f.root.append(svg('rect', {x: f.x(i) - wide / 2, width: wide, y: f.y(below + part),
                                 height: Math.max(0, f.y(below) - f.y(below + part)),
                                 fill: `var(--${parts[p][1]})`}));
      below += part;
    });
  });
  f.hover((value) => {
    const i = Math.max(0, Math.min(columns.length - 1, Math.round(value)));
    const lines = parts.map(([name], p) => `${name}  ${time(columns[i].parts[p])}`);
    return {at: i, text: [`step ${columns[i].label}  ${time(sums[i])}`, ...lines].join('\n')};
  });
  return f.root;
}

/**
 * Stacked areas over time, drawn as steps: memory stays as it is until the next sample.
 * @param {number[]} times ns
 * @param {number[][]} layers one array of bytes a layer
 * @param {[string, string][]} names name and colour of each layer
 * @param {number} capacity 0 = unknown
 */
function memoryChart(times, layers, names, capacity) {
  const totals = times.map((_, i) => layers.reduce((sum, layer) => sum + layer[i], 0));
  const peak = Math.max(...totals);
  const high = capacity > 0 && peak > capacity / 3 ? Math.max(capacity, peak) * 1.04 : peak * 1.08;
  const unit = 1024 ** Math.min(4, Math.max(0, Math.floor(Math.log2(high) / 10)));
  const begin = times[0];
  const f = frame({x: [0, times[times.length - 1] - begin], y: [0, high], xLabel: 'time',
                   xText: (v) => time(v), yText: bytes, width: 1200, height: 260,
                   yTicks: ticks(0, high / unit, 4).map((t) => t * unit)});
  let below = times.map(() => 0);
  layers.forEach((layer, l) => {
    const above = below.map((value, i) => value + layer[i]);
    let path = '';
    for (let i = 0; i < times.length; ++i) {
      const px = f.x(times[i] - begin).toFixed(1);
      if (i > 0) path += `L${px} ${f.y(above[i - 1]).toFixed(1)}`;
      path += `${i ? 'L' : 'M'}${px} ${f.y(above[i]).toFixed(1)}`;
    }
    for (let i = times.length - 1; i >= 0; --i) {
      const px = f.x(times[i] - begin).toFixed(1);
      path += `L${px} ${f.y(below[i]).toFixed(1)}`;
      if (i > 0) path += `L${px} ${f.y(below[i - 1]).toFixed(1)}`;
    }
    f.root.append(svg('path', {d: path + 'Z', fill: `var(--${names[l][1]})`, 'fill-opacity': 0.88}));
    below = above;
  });
  if (capacity > 0 && capacity <= high) {
    f.root.append(svg('line', {x1: f.x(0), x2: 1188, y1: f.y(capacity), y2: f.y(capacity),
                               stroke: 'var(--bad)', 'stroke-dasharray': '5 4'}));
    f.root.append(svg('text', {x: 1186, y: f.y(capacity) - 4, 'text-anchor': 'end'}, 'capacity ' + bytes(capacity)));
  }
  const relative = times.map((t) => t - begin);
  f.hover((value) => {
    const i = nearest(relative, value);
    const lines = names.map(([name], l) => `${name}  ${bytes(layers[l][i])}`).reverse();
    return {at: relative[i], text: [`${time(relative[i])}  ${bytes(totals[i])}`, ...lines].join('\n')};
  });
  return f.root;
}
