// @ts-check
// The pipeline: passes of micro-batches by stage over time, and what of a step is bubble.
import {byId, chooser, colour, element, head, legend, percent, plainTable, ranges, time, tip} from './format.js';

/** @typedef {import('./data.js').Pipeline} Pipeline @typedef {import('./data.js').Cell} Cell */

/** @type {(() => void)[]} */
const redraws = [];
export const recolourPipeline = () => redraws.forEach((draw) => draw());

const kRowHeight = 34;
const kLabel = 118;

/** @param {import('./data.js').Page} data @param {import('./data.js').Jump} jump */
export function showPipeline(data, jump) {
  const pipeline = data.job && data.job.pipeline;
  if (!pipeline || pipeline.stages.length === 0) return;
  const section = byId('pipeline');
  const measured = (100 * pipeline.measured).toFixed(1);
  section.append(head('Pipeline', `${pipeline.stages.length} stages, ${pipeline.micro_batches} micro-batches` +
    (pipeline.order !== 'unknown' ? `, ${pipeline.order}` : ', order not known')));
  const parts = [element('p', {}, [`Bubble: ${measured} % of the step (mean over stages); the schedule's ideal is ` +
    `${(100 * pipeline.ideal).toFixed(1)} %` + (pipeline.order === 'interleaved' ? '.'
    : ` = (p−1)/(m+p−1) with p = ${pipeline.stages.length}, m = ${pipeline.micro_batches}.`)])];
  if (pipeline.cells.length > 0) parts.push(chart(pipeline, jump));
  parts.push(split(pipeline));
  if (pipeline.notes.length > 0) parts.push(element('ul', {class: 'hint'}, pipeline.notes.map((t) => element('li', {}, [t]))));
  section.append(element('div', {class: 'panel'}, parts));
}

/** @param {Pipeline} pipeline */
function split(pipeline) {
  const rows = pipeline.stages.map((s) => [
    `stage ${s.stage}`, ranges(s.ranks), time(s.step), `${time(s.compute)} (${percent(s.compute, s.step)})`,
    time(s.forward), time(s.backward), `${time(s.bubble)} (${percent(s.bubble, s.step)})`, time(s.schedule), time(s.waiting),
    time(s.host_bound), time(s.transfer), time(s.other)]);
  return plainTable(['', 'ranks', 'step', 'compute', 'forward / micro-batch', 'backward / micro-batch', 'bubble', '… by schedule',
                     '… waiting', 'own host too slow', 'moving data', 'other'], rows);
}

/** @param {Pipeline} pipeline @param {import('./data.js').Jump} jump */
function chart(pipeline, jump) {
  const steps = [...new Set(pipeline.cells.map((c) => c[3]))].sort((a, b) => a - b);
  const lanes = [...new Set(pipeline.cells.map((c) => `${c[0]},${c[1]}`))].map((key) => key.split(',').map(Number))
    .sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  const canvas = /** @type {HTMLCanvasElement} */ (element('canvas', {class: 'pipeline', role: 'img', 'aria-label': 'Pipeline chart'}));
  let step = steps[Math.min(1, steps.length - 1)];
  /** @type {{x: number, y: number, w: number, cell: Cell}[]} */
  let boxes = [];
  const draw = () => {
    boxes = [];
    const cells = pipeline.cells.filter((c) => c[3] === step);
    const begin = Math.min(...cells.map((c) => c[5]));
    const end = Math.max(...cells.map((c) => c[6]));
    const width = canvas.clientWidth || 600;
    const height = lanes.length * kRowHeight + 24;
    const ratio = window.devicePixelRatio || 1;
    canvas.style.height = height + 'px';
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    const c = canvas.getContext('2d');
    if (!c) return;
    c.scale(ratio, ratio);
    c.font = '11px system-ui, "DejaVu Sans", sans-serif';
    c.textBaseline = 'middle';
    const x = (/** @type {number} */ t) => kLabel + ((t - begin) / (end - begin || 1)) * (width - kLabel - 4);
    lanes.forEach(([stage, rank], row) => {
      c.fillStyle = colour('grid');
      c.fillRect(kLabel, row * kRowHeight + 3, width - kLabel - 4, kRowHeight - 6);
      c.fillStyle = colour('soft');
      c.textAlign = 'left';
      c.fillText(`stage ${stage}, rank ${rank}`, 0, (row + 0.5) * kRowHeight);
    });
    for (const cell of cells) {
      const row = lanes.findIndex(([stage, rank]) => stage === cell[0] && rank === cell[1]);
      const [left, right] = [x(cell[5]), x(cell[6])];
      const box = {x: left, y: row * kRowHeight + 3, w: Math.max(1, right - left - 1), cell};
      boxes.push(box);
      c.fillStyle = colour(cell[4] ? 'forward' : 'backward');
      c.fillRect(box.x, box.y, box.w, kRowHeight - 6);
      const text = [`${cell[4] ? 'F' : 'B'}${cell[2] >= 0 ? cell[2] : ''}`].find((t) => c.measureText(t).width < box.w - 4);
      if (!text) continue;
      c.fillStyle = cell[4] ? '#10151c' : '#ffffff';
      c.textAlign = 'center';
      c.fillText(text, box.x + box.w / 2, box.y + (kRowHeight - 6) / 2);
    }
    c.fillStyle = colour('faint');
    c.textAlign = 'left';
    c.fillText('0', kLabel, height - 10);
    c.textAlign = 'right';
    c.fillText(time(end - begin), width - 4, height - 10);
  };
  const hit = (/** @type {MouseEvent} */ event) => {
    const box = canvas.getBoundingClientRect();
    const [px, py] = [event.clientX - box.left, event.clientY - box.top];
    return boxes.find((b) => px >= b.x && px <= b.x + b.w && py >= b.y && py <= b.y + kRowHeight - 6);
  };
  canvas.addEventListener('mousemove', (event) => {
    const found = hit(event);
    if (!found) return tip.hide();
    const {cell} = found;
    return tip.show(event, `${cell[4] ? 'forward' : 'backward'}${cell[2] >= 0 ? ` of micro-batch ${cell[2]}` : ''}\n` +
      `stage ${cell[0]}, rank ${cell[1]}\n${time(cell[6] - cell[5], 4)}`);
  });
  canvas.addEventListener('mouseleave', () => tip.hide());
  canvas.addEventListener('click', (event) => {
    const found = hit(event);
    if (found) jump(found.cell[5], found.cell[6], found.cell[1]);
  });
  redraws.push(draw);
  new ResizeObserver(draw).observe(canvas);
  const tools = steps.length > 1 ? [chooser(steps.map((s) => (s >= 0 ? `step ${s}` : 'no step')), (i) => {
    step = steps[i];
    draw();
  }, 'step')] : [];
  if (tools[0]) tools[0].selectedIndex = steps.indexOf(step);
  return element('div', {}, [element('div', {class: 'head'}, [
    legend([['forward (F and its micro-batch)', 'forward'], ['backward (B)', 'backward'], ['nothing: bubble or waiting', 'grid']]),
    element('div', {class: 'tools'}, tools)]), canvas]);
}
