// @ts-check
// The head of the page: verdict, cards, what was read, warnings, and what is not known.
import {byId, bytes, element, legend, number, percent, plainTable, ranges, time, whole} from './format.js';
import {kParts, partsOf, stackBar} from './steps.js';

/** @typedef {import('./data.js').Page} Page */

/** @param {Page} data */
export function showHead(data) {
  byId('title').textContent = data.title;
  byId('subtitle').textContent = data.subtitle;
  byId('footer').textContent = data.footer;
  byId('facts').append(...data.facts.map(([label, value]) =>
    element('div', {}, [element('dt', {}, [label]), element('dd', {}, [value])])));
  byId('cards').append(...data.cards.map((card) => element('div', {class: 'card ' + card.tone}, [
    element('div', {class: 'label'}, [card.label]),
    element('div', {class: 'value'}, [card.value, element('span', {class: 'unit'}, [card.unit])]),
    element('div', {class: 'note'}, [card.note])])));
  if (data.diagnosis) {
    const warned = data.diagnosis.findings.some((f) => f.severity !== 'note');
    byId('verdict').append(element('div', {class: 'verdict ' + (warned ? 'bad' : 'good')}, [
      element('span', {class: 'mark', 'aria-hidden': 'true'}, [warned ? '!' : '✓']),
      element('p', {}, [data.diagnosis.verdict])]));
  }
  showWarnings(data.warnings);
}

/** Long lists are folded: the first few say enough. @param {string[]} warnings */
function showWarnings(warnings) {
  if (warnings.length === 0) return;
  const lines = warnings.map((text) => element('div', {class: 'warning'}, [text]));
  byId('warnings').append(...lines.slice(0, 3));
  if (lines.length > 3) {
    byId('warnings').append(element('details', {}, [
      element('summary', {}, [`${lines.length - 3} more warnings`]), ...lines.slice(3)]));
  }
}

/** How the time of all ranks splits, in one bar. @param {Page} data */
export function showSplit(data) {
  const shown = data.job ? data.job.time.ranks.filter((r) => r.whole.span > 0) : [];
  if (shown.length === 0) return;
  const sum = shown.map((r) => partsOf(r.whole)).reduce((a, b) => a.map((v, i) => v + b[i]));
  const span = sum.reduce((a, b) => a + b, 0);
  byId('split').append(element('div', {class: 'panel'}, [
    element('h3', {}, [shown.length > 1 ? `Time of all ${shown.length} ranks` : 'Time']), stackBar(sum, span),
    legend(kParts.map(([name, fill]) => [name, fill]))]));
}

/** What was read. @param {Page} data */
export function showInputs(data) {
  if (!data.job || data.job.ranks.length === 0) return;
  const {ranks} = data.job;
  const {sizes, known, confidence, reasons, sharded} = data.job.communication.layout;
  const degrees = Object.entries(sizes).filter(([, size]) => size > 1).map(([name, size]) => `${name} ${size}`);
  const layout = !known ? 'not known' : (degrees.join(' × ') || 'one rank') + (sharded ? ', sharded (FSDP, ZeRO)' : '');
  const blobs = new Map(data.timeline.ranks.map((r) => [r.rank, r]));
  const rows = ranks.map((r) => {
    const blob = blobs.get(r.rank);
    return [String(r.rank), r.origin || '–', r.device || 'not known', r.host || '–', whole(r.steps),
            r.step > 0 ? time(r.step) : '–', blob ? whole(blob.total) : '–',
            r.clock ? clockText(r.clock) : '–', r.source];
  });
  byId('inputs').append(
    element('h2', {}, ['What was read']),
    element('div', {class: 'panel'}, [
      element('p', {}, [`${ranks.length} of ${data.job.world_size} rank${data.job.world_size > 1 ? 's' : ''}. ` +
        `Parallel layout: ${layout}${known && confidence ? ` (${confidence})` : ''}.`]),
      ...(reasons.length ? [element('p', {class: 'hint'}, [reasons.join('; ')])] : []),
      plainTable(['rank', 'from', 'device', 'host', 'steps', 'step time', 'events', 'clock offset', 'file'], rows,
                 'inputs')]));
}

/** @param {NonNullable<import('./data.js').RankRow['clock']>} clock */
function clockText(clock) {
  if (clock.method === 'none') return 'not known';
  const sure = clock.uncertainty >= 0 ? ` ± ${time(clock.uncertainty)}` : '';
  return `${time(clock.offset)}${sure}`;
}

/** What the page can't say, and which rules could not judge. @param {Page} data */
export function showUnknown(data) {
  const unknown = data.job ? data.job.unknown : [];
  const abstained = data.diagnosis ? data.diagnosis.abstained : [];
  const thinned = data.timeline.ranks.filter((r) => r.shown < r.total);
  const lines = [...unknown];
  if (thinned.length > 0) {
    const hidden = thinned.reduce((sum, r) => sum + r.total - r.shown, 0);
    const host = Math.max(...thinned.map((r) => r.host_under));
    const device = Math.max(...thinned.map((r) => r.device_under));
    lines.push(`The timeline leaves out ${whole(hidden)} of ${whole(thinned.reduce((s, r) => s + r.total, 0))} events ` +
      `of rank ${ranges(thinned.map((r) => r.rank))}: host events under ${time(host)}` +
      (device > 0 ? ` and device work under ${time(device)}` : '') +
      '. All numbers elsewhere are of all events.');
  }
  if (lines.length === 0 && abstained.length === 0) return;
  byId('unknown').append(element('h2', {}, ['What is not known']), element('div', {class: 'panel notes'}, [
    ...(lines.length ? [element('ul', {}, lines.map((text) => element('li', {}, [text])))] : []),
    ...(abstained.length ? [element('h3', {}, ['Rules that could not judge']),
      element('ul', {class: 'abstained'}, abstained.map((text) => element('li', {}, [text])))] : [])]));
}

/** Ranks side by side; what is far from the median stands out. @param {Page} data */
export function showComparison(data) {
  if (!data.job || data.job.ranks.length < 2) return;
  const {ranks, time: measured} = data.job;
  const times = new Map(measured.ranks.map((r) => [r.rank, r]));
  /** @typedef {import('./data.js').RankRow} RankRow */
  /** @type {[string, (r: RankRow) => number, (v: number, r: RankRow) => string][]} */
  const columns = [
    ['step time', (r) => r.step, (v) => time(v)],
    ['compute', (r) => times.get(r.rank)?.whole.compute ?? 0, (v) => time(v)],
    ['exposed comm.', (r) => times.get(r.rank)?.whole.exposed_communication ?? 0, (v) => time(v)],
    ['… waiting for ranks', (r) => r.exposed_wait ?? 0, (v) => time(v)],
    ['… moving data', (r) => r.exposed_transfer ?? 0, (v) => time(v)],
    ['data wait', (r) => times.get(r.rank)?.whole.data_wait ?? 0, (v) => time(v)],
    ['idle', (r) => times.get(r.rank)?.whole.idle ?? 0, (v) => time(v)],
    ['kernels', (r) => r.kernels, (v) => whole(v)],
    ['launch delay', (r) => r.launch_delay, (v) => time(v)],
    ['queue', (r) => r.queue, (v) => number(v)],
    ['tensor cores', (r) => (r.matmul > 0 ? r.tensor_core / r.matmul : 0), (v, r) => (r.matmul > 0 ? percent(v, 1) : '–')],
    ['peak memory', (r) => r.peak, (v) => (v > 0 ? bytes(v) : '–')],
  ];
  const shown = columns.filter(([, value]) => ranks.some((r) => value(r) > 0));
  const spans = Math.max(...measured.ranks.map((r) => r.whole.span), 1);
  const rows = ranks.map((r) => [
    document.createTextNode('rank ' + r.rank),
    ...shown.map(([name, value, text]) => {
      const v = value(r);
      const all = ranks.map(value).sort((a, b) => a - b);
      const middle = (all[(all.length - 1) >> 1] + all[all.length >> 1]) / 2;
      // Times are told apart only where the difference is 2 % of the span.
      const matters = name === 'kernels' || v < 1000 || Math.abs(v - middle) > spans * 0.02;
      const apart = middle > 0 && Math.abs(v - middle) > middle * 0.1 && matters && ranks.length > 1;
      return element('span', apart ? {class: v > middle ? 'above' : 'below',
        title: `median ${text(middle, r)}`} : {}, [text(v, r)]);
    })]);
  byId('comparison').append(element('div', {class: 'head'}, [element('h2', {}, ['Ranks side by side']),
    element('p', {}, ['whole window; ▲ ▼ more than a tenth from the median'])]),
    element('div', {class: 'panel'}, [plainTable(['', ...shown.map(([name]) => name)], rows)]));
}
