// @ts-check
// Memory by category over time, its peak, who holds it, and what fragments lose.
import {memoryChart} from './charts.js';
import {byId, bytes, chooser, element, head, percent, plainTable, time} from './format.js';

/** @typedef {import('./data.js').MemoryRank} MemoryRank */

/** @param {import('./data.js').Page} data */
export function showMemory(data) {
  const shown = data.memory.ranks.filter((r) => r.peak > 0);
  if (shown.length === 0) return;
  const {categories} = data.memory;
  const kept = categories.map((_, i) => i).filter((i) => shown.some((r) => r.at_peak[i] > 0 || r.bytes.some((b) => b[i] > 0)));
  const fills = kept.map((i) => (i === categories.length - 1 ? 'idle' : 'm' + i));
  const holder = element('div');
  const draw = (/** @type {number} */ index) => holder.replaceChildren(oneRank(shown[index], kept, categories, fills));
  draw(0);
  const name = (/** @type {MemoryRank} */ r) => (r.rank < 0 ? 'snapshot' : 'rank ' + r.rank);
  const tools = shown.length > 1 ? [chooser(shown.map(name), draw)] : [];
  byId('memory').append(head('Memory', `by category over time, from ${[...new Set(shown.map((r) => r.source))].join(', ')}`, tools),
                        element('div', {class: 'panel'}, [holder, ...(shown.length > 1 ? [peaks(shown, kept, categories, name)] : [])]));
}

/** @param {MemoryRank} rank @param {number[]} kept @param {string[]} categories @param {string[]} fills */
function oneRank(rank, kept, categories, fills) {
  const parts = [];
  if (rank.times.length > 1) {
    parts.push(memoryChart(rank.times, kept.map((c, i) => ({
      name: categories[c], colour: fills[i], values: rank.bytes.map((b) => b[c])})),
    {capacity: rank.capacity, reserved: rank.reserved}));
  } else {
    parts.push(element('p', {}, ['No samples over time were recorded for this rank.']));
  }
  /** @type {[string, string][]} */
  const facts = [['Peak allocated', bytes(rank.peak)]];
  if (rank.peak_reserved > 0) facts.push(['Peak reserved', bytes(rank.peak_reserved)]);
  facts.push(['Capacity', rank.capacity > 0 ? `${bytes(rank.capacity)} (${percent(Math.max(rank.peak, rank.peak_reserved), rank.capacity)} used)` : 'not known']);
  if (rank.fragmentation > 0) facts.push(['Reserved, not allocated', bytes(rank.fragmentation)]);
  if (rank.largest_free > 0) facts.push(['Largest free block', bytes(rank.largest_free)]);
  if (rank.retries > 0) facts.push(['Allocator retries', String(rank.retries)]);
  if (rank.out_of_memory > 0) facts.push(['Out of memory', `${rank.out_of_memory} times`]);
  parts.push(element('dl', {class: 'facts'}, facts.map(([label, value]) =>
    element('div', {}, [element('dt', {}, [label]), element('dd', {}, [value])]))));
  if (rank.notes.length > 0) {
    parts.push(element('ul', {class: 'hint'}, rank.notes.map((text) => element('li', {}, [text]))));
  }
  if (rank.holders.length > 0) {
    parts.push(element('h3', {class: 'second'}, [`Largest holders ${rank.holders_when}`]),
               plainTable(['holder', 'category', 'bytes', 'of the peak'], rank.holders.slice(0, 12).map((h) => [
                 h.holder, h.category || '–', bytes(h.bytes), percent(h.bytes, rank.peak)]), 'holders'));
  }
  return element('div', {}, parts);
}

/** @param {MemoryRank[]} ranks @param {number[]} kept @param {string[]} categories @param {(r: MemoryRank) => string} name */
function peaks(ranks, kept, categories, name) {
  const header = ['at the peak', 'when', ...kept.map((c) => categories[c]), 'total'];
  return element('div', {}, [element('h3', {class: 'second'}, ['Peaks of all ranks']), plainTable(header, ranks.map((r) => {
    const at = r.bytes.findIndex((b) => b.reduce((x, y) => x + y, 0) >= r.peak);
    return [name(r), at >= 0 ? time(r.times[at], 4) : '–',
            ...kept.map((c) => (r.at_peak[c] > 0 ? bytes(r.at_peak[c]) : '–')), bytes(r.peak)];
  }))]);
}
