// @ts-check
// Colours and texts of the timeline: by kind, in shades by name, in steps by density.
import {colour} from './format.js';

const kKindFills = /** @type {Object<string, string>} */ ({
  forward: 'forward', recompute: 'recompute', backward: 'backward', optimizer: 'optimizer', kernel: 'compute',
  gather: 'gather', reduce: 'communication', collective: 'communication', send: 'p2p', receive: 'p2p',
  copy: 'copy', disk: 'copy', data: 'data', operation: 'operation', region: 'region', runtime: 'runtime',
  sync: 'sync', host: 'host', step: 'line',
});
/** @param {string} kind */
export const kindFill = (kind) => kKindFills[kind] || 'host';

export const kLevels = 5;  // of density

/** @param {string} hex "#rrggbb" @returns {[number, number, number]} */
function rgb(hex) {
  const value = parseInt(hex.slice(1), 16);
  return [value >> 16 & 255, value >> 8 & 255, value & 255];
}

/** @param {string} a @param {string} b @param {number} part of b */
function mixed(a, b, part) {
  const [x, y] = [rgb(a), rgb(b)];
  return `rgb(${x.map((v, i) => Math.round(v + (y[i] - v) * part)).join(',')})`;
}

/** Neighbours of one kind get lighter and darker shades by their names. @param {number} cls */
export const shadeOf = (cls) => ((cls * 2654435761) >>> 8) % 3;

/** Per shade and density: [shade][level], and the ink on it. @param {string} base */
export function shades(base) {
  const panel = colour('panel');
  const dark = rgb(base).reduce((sum, v, i) => sum + v * [0.299, 0.587, 0.114][i], 0) < 140;
  return {
    levels: [0, 1, 2].map((shade) => {
      const own = shade === 0 ? base : mixed(base, shade === 1 ? '#ffffff' : '#000000', 0.16);
      const hex = shade === 0 ? base : '#' + (own.match(/\d+/g) || []).map((v) => Number(v).toString(16).padStart(2, '0')).join('');
      return Array.from({length: kLevels}, (_, level) => mixed(panel, hex, 0.3 + (0.7 * (level + 1)) / kLevels));
    }),
    ink: dark ? '#ffffff' : '#10151c', pale: mixed(panel, base, 0.22)};
}

/** @param {CanvasRenderingContext2D} c @param {string|undefined} text @param {number} room */
export function shortened(c, text, room) {
  if (!text) return '';
  const most = Math.floor(room / 5.2);
  let out = text.length > most ? text.slice(0, most) : text;
  while (out.length > 2 && c.measureText(out + (out.length < text.length ? '…' : '')).width > room) {
    out = out.slice(0, Math.max(1, out.length - 1 - (out.length >> 3)));
  }
  if (out.length < Math.min(4, text.length)) return '';
  return out.length < text.length ? out + '…' : out;
}
