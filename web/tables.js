// @ts-check
// Kernels, operators and gaps, in tables that sort and filter.
import {byId, bytes, element, head, number, percent, time, whole} from './format.js';
import {sortableTable} from './table.js';

/** @param {import('./data.js').Page} data @param {import('./data.js').Jump} jump */
export function showTables(data, jump) {
  if (!data.job) return;
  const {kernels, operators, gaps, totals} = data.job.tables;
  const section = byId('tables');
  if (kernels.length + operators.length + gaps.length === 0) return;
  section.append(head('Tables', 'click a column to sort, type to filter'));
  if (kernels.length > 0) section.append(kernelTable(data.job.ranks, kernels, totals.kernels));
  if (operators.length > 0) section.append(operatorTable(operators, totals.operators));
  if (gaps.length > 0) section.append(gapTable(gaps, totals.gaps, jump));
}

/** @param {import('./data.js').RankRow[]} ranks @param {import('./data.js').Kernel[]} rows @param {number} total */
function kernelTable(ranks, rows, total) {
  const sum = rows.reduce((a, r) => a + r.total, 0);
  /** @type {import('./table.js').Column<import('./data.js').Kernel>[]} */
  const columns = [
    {title: 'kernel', value: (r) => r.name}, {title: 'class', value: (r) => r.kind},
    {title: 'tensor cores', value: (r) => (r.tensor_core ? 'yes' : '–'), hint: 'by its name: “–” is not certain'},
    {title: 'count', value: (r) => r.count, text: (r) => whole(r.count)},
    {title: 'total', value: (r) => r.total, text: (r) => time(r.total), bar: (r) => r.total / Math.max(1, rows[0].total)},
    {title: 'share', value: (r) => r.total, text: (r) => percent(r.total, sum)},
    {title: 'mean', value: (r) => r.total / r.count, text: (r) => time(r.total / r.count)},
    {title: 'min', value: (r) => r.min, text: (r) => time(r.min)}, {title: 'max', value: (r) => r.max, text: (r) => time(r.max)}];
  if (rows[0].by_rank && ranks.length <= 4) {
    ranks.forEach((rank, i) => columns.push({title: `rank ${rank.rank}`, value: (r) => r.by_rank?.[i] || 0,
                                                  text: (r) => time(r.by_rank?.[i] || 0)}));
  } else if (rows[0].by_rank) {
    const spread = (/** @type {import('./data.js').Kernel} */ r) => Math.max(...(r.by_rank || [0])) - Math.min(...(r.by_rank || [0]));
    columns.push({title: 'spread over ranks', value: spread, text: (r) => time(spread(r))});
  }
  return element('div', {class: 'panel', id: 'kernels'}, [element('h3', {}, ['Kernels, copies and collectives on the device']),
    sortableTable(rows, columns, {sort: 4, filter: 'filter kernels', total, note: 'summed over ranks and streams'})]);
}

/** @param {import('./data.js').Operator[]} rows @param {number} total */
function operatorTable(rows, total) {
  const most = Math.max(...rows.map((r) => r.device), 1);
  /** @type {import('./table.js').Column<import('./data.js').Operator>[]} */
  const columns = [{title: 'operator', value: (r) => r.name}];
  if (rows.some((r) => r.shapes)) columns.push({title: 'shapes', value: (r) => r.shapes || '–'});
  columns.push(
    {title: 'count', value: (r) => r.count, text: (r) => whole(r.count)},
    {title: 'device', value: (r) => r.device, text: (r) => time(r.device), bar: (r) => r.device / most, hint: 'kernels launched directly in it'},
    {title: 'host', value: (r) => r.host, text: (r) => time(r.host)},
    {title: 'host, itself', value: (r) => r.self, text: (r) => time(r.self), hint: 'without operators inside'});
  if (rows.some((r) => r.flops > 0)) {
    columns.push({title: 'FLOP/s', value: (r) => (r.device > 0 ? r.flops / r.device : 0),
                  text: (r) => (r.flops > 0 && r.device > 0 ? number((r.flops / r.device) * 1e9) + 'FLOP/s' : '–')},
                 {title: 'FLOP / byte', value: (r) => (r.bytes > 0 ? r.flops / r.bytes : 0),
                  text: (r) => (r.flops > 0 && r.bytes > 0 ? number(r.flops / r.bytes) : '–')});
  }
  if (rows.some((r) => r.bytes > 0)) {
    columns.push({title: 'bytes', value: (r) => r.bytes, text: (r) => (r.bytes > 0 ? bytes(r.bytes) : '–')});
  }
  const device = columns.findIndex((c) => c.title === 'device');
  return element('div', {class: 'panel', id: 'operators'}, [element('h3', {}, ['Operators']),
    sortableTable(rows, columns, {sort: device, filter: 'filter operators', total, note: 'summed over ranks'})]);
}

/** @param {import('./data.js').Gap[]} rows @param {number} total @param {import('./data.js').Jump} jump */
function gapTable(rows, total, jump) {
  return element('div', {class: 'panel', id: 'gaps'}, [element('h3', {}, ['Longest gaps on the device']), sortableTable(rows, [
    {title: 'rank', value: (r) => r.rank}, {title: 'step', value: (r) => r.step, text: (r) => (r.step >= 0 ? String(r.step) : '–')},
    {title: 'at', value: (r) => r.begin, text: (r) => time(r.begin, 5)},
    {title: 'duration', value: (r) => r.duration, text: (r) => time(r.duration), bar: (r) => r.duration / Math.max(1, rows[0].duration)},
    {title: 'cause', value: (r) => r.cause}, {title: 'what', value: (r) => r.what || '–'},
  ], {sort: 3, filter: 'filter gaps', total, onRow: (r) => jump(r.begin, r.begin + r.duration, r.rank)})]);
}
