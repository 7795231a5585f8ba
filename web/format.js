// @ts-check
// Small helpers of the page: elements, numbers with units, colours, the tooltip.

/**
 * Text given here is always text, never markup: names come from traces that nobody vouches for.
 * @param {string} tag
 * @param {Object<string, string>} [attributes]
 * @param {(Node|string)[]} [children]
 * @returns {HTMLElement}
 */
export function element(tag, attributes = {}, children = []) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/** @param {string} id */
export function byId(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error('no element #' + id);
  return found;
}

/** @param {string} text @param {() => void} act @param {Object<string, string>} [attributes] */
export function button(text, act, attributes = {}) {
  const made = element('button', {type: 'button', ...attributes}, [text]);
  made.addEventListener('click', act);
  return made;
}

/** @param {string} name a CSS variable without its dashes */
export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim();
}

/** @param {number} ns @param {number} [digits] */
export function time(ns, digits = 3) {
  const size = Math.abs(ns);
  if (size === 0) return '0';
  // 999.9 µs of three digits is 1.00 ms.
  const rounded = Number(size.toPrecision(digits));
  if (rounded >= 1e9) return plain(ns / 1e9, digits) + ' s';
  if (rounded >= 1e6) return plain(ns / 1e6, digits) + ' ms';
  if (rounded >= 1e3) return plain(ns / 1e3, digits) + ' µs';
  return Math.round(ns) + ' ns';
}

/** All nanoseconds: "28.884609 ms". @param {number} ns */
export function exactTime(ns) {
  if (Math.abs(ns) < 1e3) return Math.round(ns) + ' ns';
  const [unit, digits, name] = Math.abs(ns) < 1e6 ? [1e3, 3, ' µs'] : Math.abs(ns) < 1e9 ? [1e6, 6, ' ms'] : [1e9, 9, ' s'];
  return (ns / Number(unit)).toFixed(Number(digits)).replace(/\.?0+$/, '') + name;
}

/** toPrecision without an exponent. @param {number} value @param {number} digits */
function plain(value, digits) {
  const text = value.toPrecision(digits);
  return text.includes('e') ? String(Math.round(value)) : text;
}

/** @param {number} count */
export function bytes(count) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
  let unit = 0;
  while (Math.abs(count) >= 1024 && unit < units.length - 1) {
    count /= 1024;
    unit += 1;
  }
  return (unit === 0 ? String(Math.round(count)) : count.toFixed(count < 10 ? 2 : 1)) + ' ' + units[unit];
}

/** Decimal units, as links are sold. @param {number} perSecond */
export function bandwidth(perSecond) {
  return perSecond > 0 ? (perSecond / 1e9).toPrecision(3) + ' GB/s' : '–';
}

/** @param {number} value */
export function number(value) {
  const size = Math.abs(value);
  if (value === 0) return '0';
  if (size >= 1e12) return (value / 1e12).toPrecision(3) + ' T';
  if (size >= 1e9) return (value / 1e9).toPrecision(3) + ' G';
  if (size >= 1e6) return (value / 1e6).toPrecision(3) + ' M';
  if (size >= 1e4) return (value / 1e3).toPrecision(3) + ' k';
  if (size >= 1e-3) return String(Number(value.toPrecision(4)));
  return value.toExponential(2).replace(/\.?0+e/, 'e');
}

/** @param {number} value */
export function whole(value) {
  return value.toLocaleString('en');
}

/** @param {number} part @param {number} of */
export function percent(part, of) {
  return of > 0 ? ((100 * part) / of).toFixed(1) + ' %' : '–';
}

/** "0–3, 6" @param {number[]} list */
export function ranges(list) {
  const sorted = [...list].sort((a, b) => a - b);
  const out = [];
  for (let i = 0; i < sorted.length;) {
    let j = i;
    while (j + 1 < sorted.length && sorted[j + 1] === sorted[j] + 1) j += 1;
    out.push(j > i + 1 ? `${sorted[i]}–${sorted[j]}` : sorted.slice(i, j + 1).join(', '));
    i = j + 1;
  }
  return out.join(', ');
}

/** @param {number[]} values */
export function median(values) {
  if (values.length === 0) return 0;
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[sorted.length >> 1];
}

/** @param {[string, string][]} entries label and class of its swatch */
export function legend(entries) {
  return element('div', {class: 'legend'}, entries.map(([label, name]) =>
    element('span', {}, [element('i', {class: 'fill-' + name}), label])));
}

/** Without patterns, as the canvas draws; kinds of one colour share an entry. @param {[string, string][]} entries */
export function plainLegend(entries) {
  /** @type {Map<string, string[]>} */
  const byFill = new Map();
  for (const [label, name] of entries) byFill.set(name, [...(byFill.get(name) || []), label]);
  return element('div', {class: 'legend'}, [...byFill].map(([name, labels]) => {
    const swatch = element('i');
    swatch.style.background = `var(--${name})`;
    return element('span', {}, [swatch, labels.join(', ')]);
  }));
}

/** @param {string} title @param {string} text @param {Node[]} [tools] */
export function head(title, text, tools = []) {
  return element('div', {class: 'head'}, [
    element('h2', {}, [title]), element('p', {}, [text]), element('div', {class: 'tools'}, tools)]);
}

/** @param {string[]} names @param {(index: number) => void} chosen @param {string} [label] */
export function chooser(names, chosen, label = 'rank') {
  const select = /** @type {HTMLSelectElement} */ (element('select', {'aria-label': label},
    names.map((name, i) => element('option', {value: String(i)}, [name]))));
  select.addEventListener('change', () => chosen(Number(select.value)));
  return select;
}

/** A table without sorting. @param {string[]} header @param {(Node|string)[][]} rows @param {string} [kind] */
export function plainTable(header, rows, kind = '') {
  return element('div', {class: 'scroll'}, [element('table', {class: kind}, [
    element('thead', {}, [element('tr', {}, header.map((name) => element('th', {}, [name])))]),
    element('tbody', {}, rows.map((row) => element('tr', {}, row.map((cell) => element('td', {}, [cell])))))])]);
}

export const tip = {
  /** @type {HTMLElement|null} */ box: null,
  /** @param {{clientX: number, clientY: number}} at @param {string} text */
  show(at, text) {
    if (!this.box) {
      this.box = element('div', {id: 'tip'});
      document.body.append(this.box);
    }
    this.box.textContent = text;
    this.box.style.display = 'block';
    const left = Math.min(at.clientX + 14, window.innerWidth - this.box.offsetWidth - 8);
    const below = at.clientY + 16;
    const fits = below + this.box.offsetHeight < window.innerHeight;
    this.box.style.left = Math.max(4, left) + 'px';
    this.box.style.top = (fits ? below : at.clientY - this.box.offsetHeight - 10) + 'px';
  },
  hide() {
    if (this.box) this.box.style.display = 'none';
  },
};
