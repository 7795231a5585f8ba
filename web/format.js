// @ts-check
// Small helpers of the report's page: elements, numbers with units, the tooltip.
'use strict';

/**
 * @param {string} tag
 * @param {Object<string, string>} [attributes]
 * @param {(Node|string)[]} [children]
 * @returns {HTMLElement}
 */
function element(tag, attributes = {}, children = []) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/** @param {string} id */
function byId(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error('no element #' + id);
  return found;
}

/** @param {string} name a CSS variable without its dashes */
function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim();
}

/** @param {number} ns @param {number} [digits] */
function time(ns, digits = 3) {
  const size = Math.abs(ns);
  if (size === 0) return '0';
  if (size >= 1e9) return (ns / 1e9).toPrecision(digits) + ' s';
  if (size >= 1e6) return (ns / 1e6).toPrecision(digits) + ' ms';
  if (size >= 1e3) return (ns / 1e3).toPrecision(digits) + ' µs';
  return Math.round(ns) + ' ns';
}

/** @param {number} count */
function bytes(count) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  while (Math.abs(count) >= 1024 && unit < units.length - 1) {
    count /= 1024;
    unit += 1;
  }
  return (unit === 0 ? String(count) : count.toFixed(2)) + ' ' + units[unit];
}

/** @param {number} value */
function number(value) {
  const size = Math.abs(value);
  if (value === 0) return '0';
  if (size >= 1e9) return (value / 1e9).toPrecision(3) + ' G';
  if (size >= 1e6) return (value / 1e6).toPrecision(3) + ' M';
  if (size >= 1e4) return (value / 1e3).toPrecision(3) + ' k';
  if (size >= 1e-3) return String(Number(value.toPrecision(4)));
  return value.toExponential(2).replace(/\.?0+e/, 'e');
}

/** @param {number} part @param {number} whole */
function percent(part, whole) {
  return whole > 0 ? ((100 * part) / whole).toFixed(1) + ' %' : '–';
}

/** @param {[string, string][]} entries label and CSS variable */
function legend(entries) {
  return element('div', {class: 'legend'}, entries.map(([label, name]) =>
    element('span', {}, [element('i', {style: `background: var(--${name})`}), label])));
}

/** @param {string} title @param {string} text @param {Node[]} [tools] */
function head(title, text, tools = []) {
  return element('div', {class: 'head'}, [
    element('h2', {}, [title]), element('p', {}, [text]), element('div', {class: 'tools'}, tools)]);
}

/** @param {string[]} names @param {(index: number) => void} chosen */
function chooser(names, chosen) {
  const select = /** @type {HTMLSelectElement} */ (element('select', {'aria-label': 'rank'},
    names.map((name, i) => element('option', {value: String(i)}, [name]))));
  select.addEventListener('change', () => chosen(Number(select.value)));
  return select;
}

const tip = {
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
    this.box.style.left = left + 'px';
    this.box.style.top = at.clientY + 14 + 'px';
  },
  hide() {
    if (this.box) this.box.style.display = 'none';
  },
};
