// @ts-check
// Who waits for whom, bytes between ranks, collectives, groups, and the links between cards.
import {bandwidth, byId, bytes, chooser, colour, element, head, percent, ranges, time, tip, whole} from './format.js';

import {sortableTable} from './table.js';

/** @typedef {import('./data.js').Page} Page @typedef {import('./data.js').Matrix} Matrix */
/** @typedef {import('./data.js').Communication} Communication */

/** @type {(() => void)[]} */
const redraws = [];
export const recolourMatrices = () => redraws.forEach((draw) => draw());

/** @param {Page} data @param {import('./data.js').Jump} jump */
export function showCommunication(data, jump) {
  if (!data.job) return;
  const {communication} = data.job;
  if (communication.kinds.length === 0 && communication.collectives.length === 0) return;
  const section = byId('communication');
  section.append(head('Communication', 'waiting for other ranks told from moving data'));
  const matrices = matrixPanel(communication);
  if (matrices) section.append(matrices);
  section.append(kinds(communication));
  if (communication.collectives.length > 0) section.append(longest(communication, jump));
  const groups = communication.layout.groups;
  if (groups.length > 0) section.append(groupTable(groups));
  for (const nccl of communication.nccl) section.append(ncclPanel(nccl));
}

/** @param {Communication} communication */
function matrixPanel(communication) {
  /** @type {[string, Matrix, (v: number) => string, string][]} */
  const all = [];
  if (communication.waits.length > 0) {
    all.push(['Who waits for whom', communication.waits, (v) => time(v), 'row waits for column, inside collectives, summed over the window']);
  }
  const roles = Object.entries(communication.bytes).filter(([, cells]) => cells.length > 0);
  if (roles.length > 1) {
    /** @type {Map<string, [number, number, number]>} */
    const sums = new Map();
    for (const [from, to, amount] of roles.flatMap(([, cells]) => cells)) {
      const cell = sums.get(from + ',' + to) || [from, to, 0];
      cell[2] += amount;
      sums.set(from + ',' + to, cell);
    }
    all.push(['Bytes, all groups', [...sums.values()], bytes, kShared]);
  }
  for (const [role, cells] of roles) all.push([`Bytes, ${role === 'unknown' ? 'group of unknown role' : role + ' group'}`, cells, bytes, kShared]);
  if (all.length === 0 || communication.ranks.length < 2) return null;
  const ranks = [...new Set([...communication.ranks, ...all.flatMap(([, cells]) => cells.flatMap(([a, b]) => [a, b]))])].sort((a, b) => a - b);
  const grid = element('div', {class: 'grid matrices'});
  const first = communication.waits.length > 0 ? [all[0]] : [];
  for (const entry of first) grid.append(matrix(entry, ranks));
  const rest = all.slice(first.length);
  if (rest.length > 0) {
    const holder = element('div');
    const draw = (/** @type {number} */ i) => holder.replaceChildren(matrix(rest[i], ranks));
    draw(0);
    grid.append(element('div', {}, [holder, ...(rest.length > 1 ? [chooser(rest.map(([name]) => name), draw, 'group')] : [])]));
  }
  return element('div', {class: 'panel'}, [grid]);
}

const kShared = 'row sends to column; a collective’s bytes are shared evenly over the other ranks of its group';

/** @param {[string, Matrix, (v: number) => string, string]} entry @param {number[]} ranks */
function matrix([title, cells, text, hint], ranks) {
  const canvas = /** @type {HTMLCanvasElement} */ (element('canvas', {class: 'matrix', role: 'img', 'aria-label': title}));
  const places = new Map(ranks.map((rank, i) => [rank, i]));
  const most = Math.max(...cells.map((c) => c[2]), 1);
  const label = 34;
  const size = Math.max(8, Math.min(84, Math.floor(430 / ranks.length)));
  const edge = label + size * ranks.length;
  const draw = () => {
    const ratio = window.devicePixelRatio || 1;
    canvas.width = canvas.height = Math.round((edge + 4) * ratio);
    canvas.style.width = canvas.style.height = edge + 4 + 'px';
    const c = canvas.getContext('2d');
    if (!c) return;
    c.scale(ratio, ratio);
    c.font = '11px system-ui, "DejaVu Sans", sans-serif';
    c.textBaseline = 'middle';
    c.textAlign = 'center';
    const every = Math.ceil(14 / size);
    const grid = colour('grid');
    ranks.forEach((rank, i) => {
      ranks.forEach((_, j) => {
        c.fillStyle = i === j ? colour('page') : grid;
        c.fillRect(label + j * size, label + i * size, size - 1, size - 1);
      });
      if (i % every) return;
      c.fillStyle = colour('soft');
      c.fillText(String(rank), label + (i + 0.5) * size, label - 10);
      c.fillText(String(rank), label - 12, label + (i + 0.5) * size);
    });
    for (const [from, to, amount] of cells) {
      const [i, j] = [places.get(from) ?? 0, places.get(to) ?? 0];
      const part = amount / most;
      c.globalAlpha = 0.15 + 0.85 * part;
      c.fillStyle = colour('communication');
      c.fillRect(label + j * size, label + i * size, size - 1, size - 1);
      c.globalAlpha = 1;
      if (size < 56) continue;
      c.fillStyle = part > 0.55 ? '#ffffff' : colour('ink');
      c.fillText(text(amount), label + (j + 0.5) * size, label + (i + 0.5) * size);
    }
  };
  redraws.push(draw);
  draw();
  canvas.addEventListener('mousemove', (event) => {
    const box = canvas.getBoundingClientRect();
    const j = Math.floor((event.clientX - box.left - label) / size);
    const i = Math.floor((event.clientY - box.top - label) / size);
    if (ranks[i] === undefined || ranks[j] === undefined) return tip.hide();
    const cell = cells.find(([from, to]) => from === ranks[i] && to === ranks[j]);
    return tip.show(event, `rank ${ranks[i]} → rank ${ranks[j]}\n${cell ? text(cell[2]) : 'nothing'}`);
  });
  canvas.addEventListener('mouseleave', () => tip.hide());
  return element('div', {}, [element('h3', {}, [title]), canvas, element('p', {class: 'hint'}, [hint])]);
}

/** @param {Communication} communication */
function kinds(communication) {
  const rows = communication.kinds;
  const total = Math.max(...rows.map((r) => r.total), 1);
  return element('div', {class: 'panel'}, [element('h3', {}, ['Collectives by kind and group']), sortableTable(rows, [
    {title: 'collective', value: (r) => r.name || 'not known'}, {title: 'group', value: (r) => r.group || '–'},
    {title: 'ranks', value: (r) => ranges(r.ranks) || '–'},
    {title: 'count', value: (r) => r.count, text: (r) => whole(r.count) + (r.unmatched ? ` (${r.unmatched} not matched)` : '')},
    {title: 'largest', value: (r) => r.bytes, text: (r) => (r.bytes > 0 ? bytes(r.bytes) : '–')},
    {title: 'total', value: (r) => r.total, text: (r) => time(r.total), bar: (r) => r.total / total},
    {title: 'exposed', value: (r) => r.exposed, text: (r) => time(r.exposed)},
    {title: 'waiting', value: (r) => r.wait, text: (r) => time(r.wait), hint: 'for the last rank to arrive'},
    {title: 'transfer', value: (r) => r.transfer, text: (r) => time(r.transfer)},
    {title: 'bus bandwidth', value: (r) => r.bandwidth, text: (r) => bandwidth(r.bandwidth), hint: 'median of messages over 1 MiB'},
    {title: 'of the link', value: (r) => (r.expected > 0 ? r.bandwidth / r.expected : 0),
     text: (r) => (r.expected > 0 && r.bandwidth > 0 ? `${percent(r.bandwidth, r.expected)} of ${r.expected_from}` : '–')},
    {title: 'arrives last', value: (r) => (r.last[0] ? r.last[0][1] : 0),
     text: (r) => r.last.slice(0, 3).map(([rank, times]) => `rank ${rank} ${times}×`).join(', ') || '–'},
  ], {sort: 6, filter: 'filter collectives', note: 'summed over ranks'})]);
}

/** @param {Communication} communication @param {import('./data.js').Jump} jump */
function longest(communication, jump) {
  const rows = communication.collectives;
  return element('div', {class: 'panel'}, [element('h3', {}, ['Longest collectives']), sortableTable(rows, [
    {title: 'collective', value: (r) => r.name || 'not known'}, {title: 'group', value: (r) => r.group || '–'},
    {title: 'step', value: (r) => r.step, text: (r) => (r.step >= 0 ? String(r.step) : '–')},
    {title: 'at', value: (r) => r.begin, text: (r) => time(r.begin, 5)},
    {title: 'bytes', value: (r) => r.bytes, text: (r) => (r.bytes > 0 ? bytes(r.bytes) : '–')},
    {title: 'exposed waiting', value: (r) => r.wait, text: (r) => time(r.wait)},
    {title: 'transfer', value: (r) => r.transfer, text: (r) => time(r.transfer)},
    {title: 'arrival skew', value: (r) => r.skew, text: (r) => time(r.skew)},
    {title: 'last', value: (r) => r.last, text: (r) => (r.last >= 0 ? 'rank ' + r.last : '–')},
    {title: 'bus bandwidth', value: (r) => r.bandwidth, text: (r) => bandwidth(r.bandwidth)},
    {title: 'ranks seen', value: (r) => (r.whole ? 'all' : 'some')},
  ], {sort: 5, filter: 'filter', total: communication.collectives_total, onRow: (r) => jump(r.begin, r.end, -1)})]);
}

/** @param {import('./data.js').LayoutGroup[]} groups */
function groupTable(groups) {
  return element('details', {class: 'panel'}, [element('summary', {}, [`${groups.length} process group${groups.length > 1 ? 's' : ''}`]), sortableTable(groups, [
    {title: 'role', value: (g) => g.role}, {title: 'name', value: (g) => g.name},
    {title: 'description', value: (g) => g.description || '–'},
    {title: 'ranks', value: (g) => ranges(g.ranks) || 'not listed'},
    {title: 'uses', value: (g) => g.uses, text: (g) => whole(g.uses)},
    {title: 'time', value: (g) => g.total, text: (g) => time(g.total)},
    {title: 'bytes', value: (g) => g.bytes, text: (g) => (g.bytes > 0 ? bytes(g.bytes) : '–')},
  ], {sort: 5})]);
}

/** @param {import('./data.js').Nccl} nccl */
function ncclPanel(nccl) {
  const transports = Object.entries(nccl.transports).map(([name, count]) => `${name} ${count}×`).join(', ');
  /** @type {[string, string][]} */
  const facts = [['Version', nccl.version || 'not known'], ['Channels', transports || 'none seen'],
                 ['Network', [nccl.network, ...nccl.devices].filter((t) => t).join(', ') || 'none seen'],
                 ['Hosts', nccl.hosts.join(', ') || 'not known']];
  for (const [name, value] of Object.entries(nccl.environment)) facts.push([name, value]);
  return element('div', {class: 'panel'}, [element('h3', {}, ['NCCL log: ' + nccl.source]),
    element('dl', {class: 'facts'}, facts.map(([label, value]) => element('div', {}, [element('dt', {}, [label]), element('dd', {}, [value])]))),
    ...nccl.problems.map((text) => element('div', {class: 'warning'}, [text]))]);
}

/** @type {Object<string, string>} */
const kLinkWords = {self: '', unknown: '?'};

/** Links between cards, best darkest; cards of one NVLink island share a frame of rows. @param {Page} data */
export function showTopology(data) {
  if (!data.job || data.job.topologies.length === 0) return;
  const section = byId('topology');
  section.append(head('Topology', 'links between the cards of a host'));
  for (const topology of data.job.topologies) {
    const names = [...topology.gpus, ...topology.nics];
    const island = new Map(topology.islands.flatMap((gpus, i) => gpus.map((gpu) => [gpu, i])));
    const rows = topology.links.map((row, i) => element('tr', {}, [
      element('th', {scope: 'row'}, [names[i] ?? String(i)]),
      ...row.map((link) => {
        const cell = element('td', {class: 'link ' + link.kind.toLowerCase().replace(/[^a-z]/g, '')},
                             [i >= 0 && link.nvlinks > 0 ? `${link.kind} ×${link.nvlinks}` : kLinkWords[link.kind.toLowerCase()] ?? link.kind]);
        return cell;
      }),
      element('td', {}, [i < topology.gpus.length && topology.numa[i] >= 0 ? String(topology.numa[i]) : '–']),
      element('td', {}, [i < topology.gpus.length ? String((island.get(i) ?? 0) + 1) : '–'])]));
    const islands = topology.islands.filter((gpus) => gpus.length > 1);
    section.append(element('div', {class: 'panel'}, [element('h3', {}, [topology.source]),
      element('p', {}, [islands.length === 0 ? 'No NVLink: every card is an island.'
        : `${topology.islands.length} NVLink island${topology.islands.length > 1 ? 's' : ''}: ` +
          topology.islands.map((gpus) => `{${ranges(gpus)}}`).join(' ')]),
      element('div', {class: 'scroll'}, [element('table', {class: 'links'}, [
        element('thead', {}, [element('tr', {}, ['', ...names, 'NUMA', 'island'].map((name) => element('th', {}, [name])))]),
        element('tbody', {}, rows)])])]));
  }
}

