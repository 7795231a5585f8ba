// @ts-check
// The timeline on a canvas: geometry and drawing. A row is a track; a pixel that many spans share is
// drawn once, as dense as they are busy, so that millions cost no more than what is visible.
import {colour, time, whole} from './format.js';
import {lowerBound} from './timeline_data.js';
import {kindFill, kLevels, shadeOf, shades, shortened} from './timeline_paint.js';

/** @typedef {import('./timeline_data.js').RankSpans} RankSpans @typedef {import('./timeline_data.js').Track} Track */
/** @typedef {{rank: RankSpans, place: number}} Where a span */
/** @typedef {{rank: RankSpans, lane: number, track: Track|null, y: number, height: number, label: string,
 *   head: boolean}} Row */
/** @typedef {{from: number, to: number, top: number, bottom: number}} Area times; rows' pixels */

const kRow = {head: 22, device: 20, host: 15, gap: 2, laneGap: 6, rankGap: 10, axis: 40};
export class TimelineView {
  /** @param {HTMLCanvasElement} canvas @param {string[]} kinds @param {number} end */
  constructor(canvas, kinds, end) {
    this.canvas = canvas;
    this.kinds = kinds;
    this.end = Math.max(1, end);
    this.from = 0;
    this.to = this.end;
    this.scroll = 0;
    /** @type {RankSpans[]} */ this.ranks = [];
    /** @type {Row[]} */ this.rows = [];
    /** @type {Set<number>} */ this.folded = new Set();
    /** @type {Where|null} */ this.selected = null;
    /** @type {Where[]} */ this.linked = [];
    /** @type {Area|null} */ this.area = null;
    /** @type {{from: number, to: number, rank: number}|null} */ this.mark = null;
    /** @type {Map<RankSpans, Uint8Array>|null} classes that the search found */ this.found = null;
    /** Of the first rank that has some. @type {{name: string, start: number, end: number}[]} */ this.steps = [];
    this.contentHeight = 0;
    this.height = 160;
    this.pending = false;
    new ResizeObserver(() => this.draw()).observe(canvas);
  }

  /** @param {RankSpans[]} ranks */
  setRanks(ranks) {
    this.ranks = ranks;
    // Many ranks: device lanes alone, host threads on demand.
    if (ranks.length > 4) for (const rank of ranks) this.folded.add(rank.rank);
    this.layout();
    this.draw();
  }

  layout() {
    this.rows = [];
    let y = 4;
    for (const rank of this.ranks) {
      this.rows.push({rank, lane: -1, track: null, y, height: kRow.head, label: 'rank ' + rank.rank, head: true});
      y += kRow.head + kRow.gap;
      const order = rank.lanes.map((_, i) => i).sort((a, b) => Number(rank.lanes[b].device) - Number(rank.lanes[a].device));
      for (const index of order) {
        const lane = rank.lanes[index];
        if (lane.tracks.length === 0 || (this.folded.has(rank.rank) && !lane.device)) continue;
        if (this.onlySteps(rank, lane)) continue;
        const height = lane.device ? kRow.device : kRow.host;
        lane.tracks.forEach((track, t) => {
          this.rows.push({rank, lane: index, track, y, height, label: t === 0 ? lane.name : '', head: false});
          y += height + kRow.gap;
        });
        y += kRow.laneGap;
      }
      y += kRow.rankGap;
    }
    this.contentHeight = y;
    this.height = Math.min(620, Math.max(160, y + kRow.axis));
    this.scrollTo(this.scroll);
  }

  /** Steps have their own strip at the top. @param {RankSpans} rank @param {import('./timeline_data.js').Lane} lane */
  onlySteps(rank, lane) {
    const step = this.kinds.indexOf('step');
    return lane.tracks.length === 1 && lane.tracks[0].end - lane.tracks[0].begin < 10000 &&
      rank.cls.subarray(lane.tracks[0].begin, lane.tracks[0].end).every((c) => rank.classes[c].kind === step);
  }

  /** @param {number} ns */
  px(ns) {
    return this.label + ((ns - this.from) / (this.to - this.from)) * (this.width - this.label);
  }

  /** @param {number} px */
  ns(px) {
    return this.from + ((px - this.label) / (this.width - this.label)) * (this.to - this.from);
  }

  /** Width of the rows' names. */
  get label() {
    return this.width < 700 ? 84 : 150;
  }

  get width() {
    return this.canvas.clientWidth || 1;
  }

  /** At the next frame, however often it is asked for. */
  draw() {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => {
      this.pending = false;
      this.drawNow();
    });
  }

  drawNow() {
    const {canvas} = this;
    const ratio = window.devicePixelRatio || 1;
    canvas.style.height = this.height + 'px';
    const [wide, high] = [Math.round(this.width * ratio), Math.round(this.height * ratio)];
    if (canvas.width !== wide || canvas.height !== high) [canvas.width, canvas.height] = [wide, high];
    canvas.dataset.from = String(Math.round(this.from));
    canvas.dataset.to = String(Math.round(this.to));
    const c = canvas.getContext('2d');
    if (!c) return;
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    c.clearRect(0, 0, this.width, this.height);
    c.font = '11px system-ui, "DejaVu Sans", sans-serif';
    c.textBaseline = 'middle';
    this.ink = {text: colour('ink'), soft: colour('soft'), faint: colour('faint'), line: colour('line'),
                grid: colour('grid'), panel: colour('panel'), accent: colour('accent')};
    this.fills = this.kinds.map((kind) => shades(colour(kindFill(kind))));
    c.save();
    c.beginPath();
    c.rect(0, kRow.axis, this.width, this.height - kRow.axis);
    c.clip();
    c.translate(0, kRow.axis - this.scroll);
    this.drawMark(c);
    this.drawGrid(c);
    for (const row of this.rows) {
      if (row.y + row.height < this.scroll || row.y > this.scroll + this.height - kRow.axis) continue;
      if (row.head) this.drawHead(c, row);
      else this.drawTrack(c, row);
    }
    this.drawFlows(c);
    this.drawArea(c);
    c.restore();
    this.drawAxis(c);
    this.drawScrollbar(c);
  }

  /** @param {CanvasRenderingContext2D} c */
  drawGrid(c) {
    if (!this.ink) return;
    c.fillStyle = this.ink.grid;
    for (const t of this.ticks()) c.fillRect(Math.round(this.px(t)), 0, 1, Math.max(this.contentHeight, this.height));
  }

  ticks() {
    const count = Math.max(2, Math.floor((this.width - this.label) / 110));
    const raw = (this.to - this.from) / count;
    const power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw) || raw;
    const out = [];
    for (let t = Math.ceil(this.from / step) * step; t <= this.to; t += step) out.push(t);
    return out;
  }

  /** @param {CanvasRenderingContext2D} c */
  drawAxis(c) {
    if (!this.ink) return;
    c.fillStyle = this.ink.panel;
    c.fillRect(0, 0, this.width, kRow.axis);
    c.textAlign = 'center';
    const all = this.ticks();
    const step = all.length > 1 ? all[1] - all[0] : this.to - this.from;
    for (const t of all) {
      const x = this.px(t);
      if (x > this.width - 30 || x < this.label + 20) continue;
      const digits = Math.min(12, Math.max(1, Math.ceil(Math.log10(Math.max(1, t) / step)) + 1));
      c.fillStyle = this.ink.faint;
      c.fillText(time(t, Math.max(3, digits)), x, 9);
    }
    this.drawSteps(c);
  }

  /** @param {CanvasRenderingContext2D} c */
  drawSteps(c) {
    if (!this.ink) return;
    c.textAlign = 'left';
    this.steps.forEach((step, i) => {
      const [x, right] = [this.px(step.start), this.px(step.end)];
      if (!this.ink || right < this.label || x > this.width) return;
      const left = Math.max(this.label, x);
      c.fillStyle = i % 2 ? this.ink.grid : this.ink.line;
      c.fillRect(left, 20, Math.max(1, Math.min(right, this.width) - left - 1), 16);
      c.fillStyle = this.ink.soft;
      const text = [step.name, step.name.replace(/^ProfilerStep#|^step /, '')]
        .find((t) => c.measureText(t).width < Math.min(right, this.width) - left - 8);
      if (text) c.fillText(text, left + 5, 28.5);
    });
  }

  /** @param {CanvasRenderingContext2D} c @param {Row} row */
  drawHead(c, row) {
    if (!this.ink) return;
    c.textAlign = 'left';
    c.fillStyle = this.ink.grid;
    c.fillRect(0, row.y, this.width, row.height);
    c.fillStyle = this.ink.text;
    c.font = '600 12px system-ui, "DejaVu Sans", sans-serif';
    c.fillText((this.folded.has(row.rank.rank) ? '▸ ' : '▾ ') + row.label, 4, row.y + row.height / 2 + 0.5);
    c.font = '11px system-ui, "DejaVu Sans", sans-serif';
    const hidden = row.rank.lanes.filter((lane) => !lane.device && lane.tracks.length > 0).length;
    if (this.folded.has(row.rank.rank) && hidden > 0) {
      c.fillStyle = this.ink.soft;
      c.fillText(`${hidden} host thread${hidden > 1 ? 's' : ''} folded`, 90, row.y + row.height / 2 + 0.5);
    }
  }

  /** @param {CanvasRenderingContext2D} c @param {Row} row */
  drawTrack(c, row) {
    const {rank, track} = row;
    if (!this.ink || !this.fills || !track) return;
    c.textAlign = 'left';
    if (row.label) {
      c.fillStyle = this.ink.soft;
      c.fillText(row.label, 14, row.y + row.height / 2, this.label - 22);
    }
    const found = this.found && this.found.get(rank);
    const perPixel = (this.to - this.from) / (this.width - this.label);
    let i = lowerBound(rank.end, track.begin, track.end, this.from);
    while (i < track.end && rank.start[i] < this.to) {
      const left = this.px(rank.start[i]);
      const right = this.px(rank.end[i]);
      if (right - left >= 2) {
        this.drawSpan(c, row, i, Math.max(this.label, left), Math.min(this.width + 2, right), found);
        i += 1;
        continue;
      }
      // All that begin within this pixel, as one column.
      const column = Math.floor(left);
      const next = Math.max(i + 1, lowerBound(rank.start, i, track.end, this.ns(column + 1)));
      const busy = (track.busy[next - track.begin] - track.busy[i - track.begin]) / perPixel;
      const shown = found ? this.firstFound(rank, found, i, next) : i;
      const cls = rank.cls[shown < 0 ? i : shown];
      const fills = this.fills[rank.classes[cls].kind];
      const level = Math.min(kLevels - 1, Math.floor(Math.min(1, busy) * kLevels));
      c.fillStyle = shown < 0 ? fills.pale : fills.levels[shadeOf(cls)][found ? kLevels - 1 : level];
      if (column >= this.label) c.fillRect(column, row.y, found && shown >= 0 ? 2 : 1, row.height);
      i = next;
    }
  }

  /** @param {RankSpans} rank @param {Uint8Array} found @param {number} from @param {number} to */
  firstFound(rank, found, from, to) {
    for (let i = from; i < to; ++i) if (found[rank.cls[i]]) return i;
    return -1;
  }

  /**
   * @param {CanvasRenderingContext2D} c @param {Row} row @param {number} i @param {number} left
   * @param {number} right @param {Uint8Array|null|undefined} found
   */
  drawSpan(c, row, i, left, right, found) {
    if (!this.fills || !this.ink) return;
    const cls = row.rank.cls[i];
    const {name, kind, block} = row.rank.classes[cls];
    const fills = this.fills[kind];
    const dim = found && !found[cls];
    c.fillStyle = dim ? fills.pale : fills.levels[shadeOf(cls)][kLevels - 1];
    const wide = right - left - (right - left > 4 ? 1 : 0);
    c.fillRect(left, row.y, wide, row.height);
    if (this.selected && this.selected.rank === row.rank && this.selected.place === i) {
      c.strokeStyle = this.ink.text;
      c.lineWidth = 2;
      c.strokeRect(left + 1, row.y + 1, Math.max(2, wide - 2), row.height - 2);
    }
    if (wide < 26) return;
    const {strings} = row.rank;
    const text = shortened(c, strings[name] || strings[block], wide - 8);
    if (!text) return;
    c.fillStyle = dim ? this.ink.faint : fills.ink;
    c.fillText(text, left + 4, row.y + row.height / 2 + 0.5);
  }

  /** The place that a finding or a table points at. @param {CanvasRenderingContext2D} c */
  drawMark(c) {
    if (!this.mark || !this.ink) return;
    const {from, to, rank} = this.mark;
    const rows = this.rows.filter((r) => rank < 0 || r.rank.rank === rank);
    if (rows.length === 0) return;
    const top = rows[0].y;
    const last = rows[rows.length - 1];
    const [left, right] = [Math.max(this.label, this.px(from)), Math.min(this.width, this.px(to))];
    if (right < this.label || left > this.width) return;
    c.fillStyle = this.ink.accent;
    c.globalAlpha = 0.13;
    c.fillRect(left, top, Math.max(2, right - left), last.y + last.height - top);
    c.globalAlpha = 1;
    c.fillRect(left, top, 1.5, last.y + last.height - top);
    c.fillRect(Math.max(left, right - 1.5), top, 1.5, last.y + last.height - top);
  }

  /** @param {CanvasRenderingContext2D} c */
  drawArea(c) {
    if (!this.area || !this.ink) return;
    const [left, right] = [this.px(this.area.from), this.px(this.area.to)];
    c.fillStyle = this.ink.accent;
    c.globalAlpha = 0.16;
    c.fillRect(left, this.area.top, right - left, this.area.bottom - this.area.top);
    c.globalAlpha = 1;
    c.strokeStyle = this.ink.accent;
    c.lineWidth = 1;
    c.strokeRect(left + 0.5, this.area.top + 0.5, right - left, this.area.bottom - this.area.top);
    c.fillStyle = this.ink.text;
    c.textAlign = 'center';
    c.fillText(time(this.area.to - this.area.from, 4), (left + right) / 2, Math.max(this.scroll + 10, this.area.top + 10));
  }

  /** From the selected span to what it launched or what launched it, and to the same collective of other
   * ranks. @param {CanvasRenderingContext2D} c */
  drawFlows(c) {
    if (!this.selected || !this.ink) return;
    const from = this.anchor(this.selected);
    if (!from) return;
    c.strokeStyle = c.fillStyle = this.ink.text;
    c.lineWidth = 1.5;
    for (const other of this.linked) {
      const to = this.anchor(other);
      if (!to) continue;
      const [a, b] = from.y <= to.y ? [from, to] : [to, from];
      c.beginPath();
      c.moveTo(a.x, a.bottom);
      const bend = Math.max(12, Math.min(60, (b.y - a.bottom) / 2));
      c.bezierCurveTo(a.x, a.bottom + bend, b.x, b.y - bend, b.x, b.y);
      c.stroke();
      for (const dot of [[a.x, a.bottom], [b.x, b.y]]) {
        c.beginPath();
        c.arc(dot[0], dot[1], 3, 0, 7);
        c.fill();
      }
    }
  }

  /** @param {Where} where */
  anchor(where) {
    const row = this.rowOf(where);
    if (!row) return null;
    const x = Math.max(this.label - 6, Math.min(this.width + 6, this.px(where.rank.start[where.place]) + 1));
    return {x, y: row.y, bottom: row.y + row.height};
  }

  /** @param {Where} where */
  rowOf(where) {
    return this.rows.find((r) => r.rank === where.rank && r.track && where.place >= r.track.begin && where.place < r.track.end);
  }

  /** @param {CanvasRenderingContext2D} c */
  drawScrollbar(c) {
    const view = this.height - kRow.axis;
    if (!this.ink || this.contentHeight <= view) return;
    c.fillStyle = this.ink.faint;
    c.globalAlpha = 0.5;
    c.fillRect(this.width - 6, kRow.axis + (this.scroll / this.contentHeight) * view, 5, (view / this.contentHeight) * view);
    c.globalAlpha = 1;
  }

  /** The row at canvas pixel y. @param {number} y */
  rowAt(y) {
    if (y < kRow.axis) return null;
    const at = y - kRow.axis + this.scroll;
    return this.rows.find((r) => at >= r.y && at < r.y + r.height + kRow.gap) || null;
  }

  /** @param {number} x @param {number} y @returns {Where|null} */
  hit(x, y) {
    const row = this.rowAt(y);
    if (!row || !row.track || x < this.label) return null;
    const slack = ((this.to - this.from) / this.width) * 2;
    const at = this.ns(x);
    const {rank, track} = row;
    const i = lowerBound(rank.end, track.begin, track.end, at - slack);
    if (i >= track.end || rank.start[i] > at + slack) return null;
    // A neighbour that holds the very point wins over one within reach.
    const next = i + 1 < track.end && rank.start[i + 1] <= at && rank.end[i] < at;
    return {rank, place: next ? i + 1 : i};
  }

  /** @param {number} from @param {number} to */
  show(from, to) {
    const span = Math.min(this.end * 1.02, Math.max(50, to - from));
    this.from = Math.min(Math.max(-0.01 * this.end, from), 1.01 * this.end - span);
    this.to = this.from + span;
    this.draw();
  }

  /** @param {number} factor @param {number} [px] the point that stays */
  zoom(factor, px = (this.width + this.label) / 2) {
    const at = this.ns(Math.max(this.label, px));
    this.show(at - (at - this.from) * factor, at + (this.to - at) * factor);
  }

  /** @param {number} y */
  scrollTo(y) {
    this.scroll = Math.max(0, Math.min(y, this.contentHeight - (this.height - kRow.axis)));
    this.draw();
  }

  /** Scrolls so that the row is visible. @param {Row} row */
  reveal(row) {
    const view = this.height - kRow.axis;
    if (row.y < this.scroll || row.y + row.height > this.scroll + view) this.scrollTo(row.y - view / 3);
  }

  /** @param {number} rank */
  fold(rank) {
    if (!this.folded.delete(rank)) this.folded.add(rank);
    this.layout();
    this.draw();
  }

  /** For a screen reader. */
  describe() {
    const spans = this.ranks.reduce((sum, r) => sum + r.start.length, 0);
    return `Timeline of ${this.ranks.length} ranks, ${whole(spans)} events`;
  }
}

export const kGeometry = kRow;
