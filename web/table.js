// @ts-check
// Tables that sort by a column and filter by text.
import {element} from './format.js';

/**
 * @template Row
 * @typedef {{title: string, value: (row: Row) => number|string, text?: (row: Row) => string,
 *   bar?: (row: Row) => number, hint?: string}} Column
 *   `value` sorts, `text` is shown; `bar` is the filled part (0..1) of the cell.
 */

const kShown = 15;

/**
 * @template Row
 * @param {Row[]} rows
 * @param {Column<Row>[]} columns
 * @param {{sort?: number, filter?: string, total?: number, onRow?: (row: Row) => void, note?: string}} [options]
 *   `sort`: the column sorted by at first, falling; `filter`: what to type there; `total`: rows there
 *   were before the longest were kept; `onRow`: a click on a row.
 */
export function sortableTable(rows, columns, options = {}) {
  let by = options.sort ?? 0;
  let falling = true;
  let needle = '';
  let most = kShown;
  const texts = (/** @type {Row} */ row) => columns.map((c) => (c.text ? c.text(row) : String(c.value(row))));
  const body = element('tbody');
  const count = element('span', {class: 'hint count'});
  const more = element('button', {type: 'button', class: 'more'}, ['Show more']);
  const heads = columns.map((column, i) => {
    const sorter = element('button', {type: 'button', class: 'sort', title: column.hint || 'sort'}, [column.title]);
    sorter.addEventListener('click', () => {
      falling = by === i ? !falling : rows.length > 0 && typeof column.value(rows[0]) === 'number';
      by = i;
      draw();
    });
    const textual = rows.length > 0 && typeof column.value(rows[0]) === 'string';
    return element('th', {scope: 'col', class: textual ? 'text' : ''}, [sorter]);
  });

  function draw() {
    const kept = rows.filter((row) => needle === '' || texts(row).some((t) => t.toLowerCase().includes(needle)));
    const value = columns[by].value;
    kept.sort((a, b) => {
      const x = value(a);
      const y = value(b);
      const order = typeof x === 'number' && typeof y === 'number' ? x - y : String(x).localeCompare(String(y));
      return falling ? -order : order;
    });
    heads.forEach((cell, i) => cell.setAttribute('aria-sort',
      i !== by ? 'none' : falling ? 'descending' : 'ascending'));
    body.replaceChildren(...kept.slice(0, most).map(rowElement));
    const all = options.total && options.total > rows.length
      ? `the ${rows.length} longest of ${options.total}` : `${rows.length}`;
    count.textContent = needle ? `${kept.length} of ${all}` : `${all} row${rows.length === 1 ? '' : 's'}`;
    more.hidden = kept.length <= most;
  }

  /** @param {Row} row */
  function rowElement(row) {
    const shown = texts(row);
    const made = element('tr', {}, columns.map((column, i) => {
      const cell = element('td', {}, [element('span', {title: shown[i].length > 40 ? shown[i] : ''}, [shown[i]])]);
      if (typeof column.value(row) === 'string') cell.className = 'text';
      if (column.bar) {
        const part = Math.max(0, Math.min(1, column.bar(row)));
        cell.style.setProperty('--part', (100 * part).toFixed(1) + '%');
        cell.classList.add('barred');
      }
      return cell;
    }));
    if (options.onRow) {
      const act = options.onRow;
      made.className = 'jumps';
      made.tabIndex = 0;
      made.title = 'show in the timeline';
      made.addEventListener('click', () => act(row));
      made.addEventListener('keydown', (event) => {
        if (event.key === 'Enter') act(row);
      });
    }
    return made;
  }

  more.addEventListener('click', () => {
    most += 200;
    draw();
  });
  const filter = /** @type {HTMLInputElement} */ (element('input', {
    type: 'search', placeholder: options.filter || 'filter', 'aria-label': 'filter'}));
  filter.addEventListener('input', () => {
    needle = filter.value.trim().toLowerCase();
    most = kShown;
    draw();
  });
  draw();
  const tools = element('div', {class: 'table-tools'}, [filter, count]);
  if (options.note) tools.append(element('span', {class: 'hint'}, [options.note]));
  return element('div', {class: 'sortable'}, [tools,
    element('div', {class: 'scroll'}, [element('table', {}, [
      element('thead', {}, [element('tr', {}, heads)]), body])]), more]);
}
