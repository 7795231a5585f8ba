// @ts-check
// The timeline on a canvas: a row a lane of every rank; wheel zooms, drag pans, a click shows a span.
'use strict';

/**
 * @typedef {{start: number[], dur: number[], name: number[], kind: number[], lane: number[], step: number[],
 *            micro: number[], block: number[], collective: number[], depth: number[]}} Spans
 * @typedef {{name: string, group: string, ranks: number[], sequence: number, in: number, out: number,
 *            sent: number, dtype: string, peer: number}} Collective
 * @typedef {{rank: number, lanes: {name: string, device: boolean}[], strings: string[], spans: Spans,
 *            collectives: Collective[], steps: {step: number, start: number, dur: number}[]}} TimelineRank
 * @typedef {{kinds: string[], end: number, ranks: TimelineRank[]}} TimelineData
 * @typedef {{rank: TimelineRank, lane: number, label: string, first: boolean, spans: number[], y: number,
 *            longest: number}} Row
 */

const kKindColours = /** @type {Object<string, string>} */ ({
  forward: 'forward', recompute: 'recompute', backward: 'backward', optimizer: 'optimizer',
  operation: 'forward', kernel: 'compute', gather: 'gather', reduce: 'reduce', collective: 'collective',
  send: 'p2p', receive: 'p2p', copy: 'copy', disk: 'copy', data: 'data',
});
const kRow = {height: 20, gap: 3, rankGap: 12, axis: 36, label: 128};

class TimelineView {
  /** @param {HTMLCanvasElement} canvas @param {HTMLElement} details @param {TimelineData} data */
  constructor(canvas, details, data) {
    this.canvas = canvas;
    this.details = details;
    this.data = data;
    this.from = 0;
    this.to = data.end;
    /** @type {{row: Row, span: number}|null} */
    this.selected = null;
    this.rows = this.makeRows();
    const last = this.rows[this.rows.length - 1];
    this.height = (last ? last.y + kRow.height : 0) + 8;
    this.listen();
    new ResizeObserver(() => this.draw()).observe(canvas);
  }

  makeRows() {
    /** @type {Row[]} */
    const rows = [];
    let y = kRow.axis + 6;
    for (const rank of this.data.ranks) {
      let first = true;
      rank.lanes.forEach((lane, index) => {
        /** @type {number[]} */
        const spans = [];
        let longest = 0;
        for (let i = 0; i < rank.spans.start.length; ++i) {
          if (rank.spans.lane[i] !== index || this.data.kinds[rank.spans.kind[i]] === 'step') continue;
          spans.push(i);
          longest = Math.max(longest, rank.spans.dur[i]);
        }
        if (spans.length === 0) return;
        rows.push({rank, lane: index, label: lane.name, first, spans, y, longest});
        first = false;
        y += kRow.height + kRow.gap;
      });
      if (!first) y += kRow.rankGap;
    }
    return rows;
  }

  /** @param {number} ns */
  px(ns) {
    return kRow.label + ((ns - this.from) / (this.to - this.from)) * (this.width - kRow.label);
  }

  /** @param {number} px */
  ns(px) {
    return this.from + ((px - kRow.label) / (this.width - kRow.label)) * (this.to - this.from);
  }

  get width() {
    return this.canvas.clientWidth || 1;
  }

  /** The index in row.spans of the first span that can reach into view. @param {Row} row */
  firstVisible(row) {
    const limit = this.from - row.longest;
    let low = 0;
    let high = row.spans.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (row.rank.spans.start[row.spans[middle]] < limit) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  draw() {
    const ratio = window.devicePixelRatio || 1;
    this.canvas.style.height = this.height + 'px';
    this.canvas.width = Math.round(this.width * ratio);
    this.canvas.height = Math.round(this.height * ratio);
    const c = this.canvas.getContext('2d');
    if (!c) return;
    c.scale(ratio, ratio);
    c.font = '11px system-ui, "DejaVu Sans", sans-serif';
    c.textBaseline = 'middle';
    const ink = {text: colour('ink'), soft: colour('soft'), faint: colour('faint'), line: colour('line'),
                 grid: colour('grid')};
    const colours = this.data.kinds.map((kind) => colour(kKindColours[kind] || 'host'));
    this.drawAxis(c, ink);
    for (const row of this.rows) this.drawRow(c, row, colours, ink);
  }

  /** @param {CanvasRenderingContext2D} c @param {Object<string, string>} ink */
  drawAxis(c, ink) {
    c.fillStyle = ink.faint;
    c.textAlign = 'center';
    const span = this.to - this.from;
    for (const t of ticks(this.from, this.to, 8)) {
      const x = this.px(t);
      if (x < kRow.label) continue;
      c.fillStyle = ink.grid;
      c.fillRect(x, 18, 1, this.height);
      c.fillStyle = ink.faint;
      const digits = Math.min(9, Math.max(3, 3 + Math.floor(Math.log10(Math.max(1, this.to / span)))));
      c.fillText(time(t, digits), Math.min(x, this.width - 30), 9);
    }
    const rank = this.data.ranks[0];
    if (!rank) return;
    for (const step of rank.steps) {
      const x = this.px(step.start);
      const right = this.px(step.start + step.dur);
      if (right < kRow.label || x > this.width) continue;
      const left = Math.max(kRow.label, x);
      c.fillStyle = ink.line;
      c.fillRect(left, 20, Math.max(1, right - left - 1), 16);
      if (x >= kRow.label) c.fillRect(x, 20, 1, this.height);
      if (Math.min(right, this.width) - left < 54) continue;
      c.fillStyle = ink.soft;
      c.textAlign = 'left';
      c.fillText('step ' + step.step, left + 6, 28.5);
      c.textAlign = 'center';
    }
  }

  /**
   * @param {CanvasRenderingContext2D} c @param {Row} row @param {string[]} colours
   * @param {Object<string, string>} ink
   */
  drawRow(c, row, colours, ink) {
    c.textAlign = 'left';
    if (row.first) {
      c.fillStyle = ink.text;
      c.fillText('rank ' + row.rank.rank, 0, row.y + kRow.height / 2);
    }
    c.fillStyle = ink.soft;
    c.fillText(row.label, 54, row.y + kRow.height / 2, kRow.label - 60);
    const spans = row.rank.spans;
    let painted = -1;
    for (let s = this.firstVisible(row); s < row.spans.length; ++s) {
      const i = row.spans[s];
      if (spans.start[i] > this.to) break;
      const left = Math.max(kRow.label, this.px(spans.start[i]));
      const right = Math.min(this.width, this.px(spans.start[i] + spans.dur[i]));
      // Spans thinner than a pixel share it.
      if (right < kRow.label || (right - left < 1 && right <= painted)) continue;
      const inset = Math.min(3, spans.depth[i]) * 3;
      const wide = Math.max(1, right - left - (right - left > 3 ? 0.7 : 0));
      c.fillStyle = colours[spans.kind[i]];
      c.fillRect(left, row.y + inset, wide, kRow.height - inset);
      painted = left + 1;
      if (wide > 30) {
        // The name where it fits, else the block, else nothing.
        const text = [spans.name[i], spans.block[i]].map((id) => row.rank.strings[id])
          .find((t) => c.measureText(t).width < wide - 7);
        c.fillStyle = '#fff';
        if (text) c.fillText(text, left + 4, row.y + kRow.height / 2 + 0.5);
      }
      if (this.selected && this.selected.row === row && this.selected.span === i) {
        c.strokeStyle = ink.text;
        c.lineWidth = 2;
        c.strokeRect(left + 1, row.y + 1, Math.max(2, wide - 2), kRow.height - 2);
      }
    }
  }

  /** @param {number} x @param {number} y @returns {{row: Row, span: number}|null} */
  hit(x, y) {
    const row = this.rows.find((r) => y >= r.y && y < r.y + kRow.height);
    if (!row || x < kRow.label) return null;
    const slack = (this.to - this.from) / this.width;
    const at = this.ns(x);
    const spans = row.rank.spans;
    let found = null;
    for (let s = this.firstVisible(row); s < row.spans.length; ++s) {
      const i = row.spans[s];
      if (spans.start[i] > at + slack) break;
      if (spans.start[i] + spans.dur[i] >= at - slack) found = {row, span: i};  // the innermost is last
    }
    return found;
  }

  /** @param {Row} row @param {number} i @returns {[string, string][]} */
  describe(row, i) {
    const {rank} = row;
    const {spans} = rank;
    /** @type {[string, string][]} */
    const out = [
      ['Name', rank.strings[spans.name[i]]], ['Kind', this.data.kinds[spans.kind[i]]],
      ['Rank, lane', rank.rank + ', ' + row.label], ['Start', time(spans.start[i], 6)],
      ['Duration', time(spans.dur[i], 4)],
    ];
    if (spans.step[i] >= 0) out.push(['Step', String(spans.step[i])]);
    if (spans.micro[i] >= 0) out.push(['Micro-batch', String(spans.micro[i])]);
    if (spans.block[i] > 0) out.push(['Block', rank.strings[spans.block[i]]]);
    const collective = rank.collectives[spans.collective[i]];
    if (!collective) return out;
    out.push(['Collective', collective.name + ', ' + collective.dtype]);
    out.push(['Group', collective.group + ' [' + collective.ranks.join(', ') + ']']);
    out.push(['Sequence', String(collective.sequence)]);
    out.push(['Elements in, out', collective.in.toLocaleString('en') + ', ' + collective.out.toLocaleString('en')]);
    out.push(['Sent by this rank', bytes(collective.sent)]);
    if (spans.dur[i] > 0) out.push(['Rate sent', bytes((collective.sent / spans.dur[i]) * 1e9) + '/s']);
    if (collective.peer >= 0) out.push(['Peer', 'rank ' + collective.peer]);
    return out;
  }

  /** @param {{row: Row, span: number}|null} what */
  select(what) {
    this.selected = what;
    this.details.replaceChildren(...(what ? this.describe(what.row, what.span).map(([label, value]) =>
      element('div', {}, [element('span', {}, [label]), element('b', {}, [value])])) :
      [element('div', {class: 'hint'}, ['Click a span for its block, micro-batch, bytes and group.'])]));
    this.draw();
  }

  /** @param {number} from @param {number} to */
  show(from, to) {
    const span = Math.min(this.data.end, Math.max(200, to - from));
    this.from = Math.min(Math.max(0, from), this.data.end - span);
    this.to = this.from + span;
    this.draw();
  }

  /** @param {number} factor @param {number} [px] the point that stays */
  zoom(factor, px = (this.width + kRow.label) / 2) {
    const at = this.ns(px);
    this.show(at - (at - this.from) * factor, at + (this.to - at) * factor);
  }

  listen() {
    const {canvas} = this;
    /** @type {{x: number, from: number, moved: boolean}|null} */
    let drag = null;
    const place = (/** @type {MouseEvent} */ event) => {
      const box = canvas.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    canvas.addEventListener('wheel', (event) => {
      event.preventDefault();
      if (event.shiftKey) {
        const by = ((this.to - this.from) * (event.deltaY || event.deltaX)) / 1500;
        this.show(this.from + by, this.to + by);
      } else {
        this.zoom(Math.exp(event.deltaY / 500), place(event)[0]);
      }
    }, {passive: false});
    canvas.addEventListener('pointerdown', (event) => {
      drag = {x: event.clientX, from: this.from, moved: false};
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener('pointermove', (event) => {
      const [x, y] = place(event);
      if (drag) {
        drag.moved = drag.moved || Math.abs(event.clientX - drag.x) > 3;
        const by = ((drag.x - event.clientX) / (this.width - kRow.label)) * (this.to - this.from);
        canvas.classList.toggle('dragging', drag.moved);
        if (drag.moved) this.show(drag.from + by, drag.from + by + this.to - this.from);
        return;
      }
      const found = this.hit(x, y);
      if (!found) return tip.hide();
      const {spans, strings} = found.row.rank;
      tip.show(event, `${strings[spans.name[found.span]]}\n${time(spans.dur[found.span], 4)}`);
    });
    canvas.addEventListener('pointerup', (event) => {
      const [x, y] = place(event);
      if (drag && !drag.moved) this.select(this.hit(x, y));
      drag = null;
      canvas.classList.remove('dragging');
    });
    canvas.addEventListener('pointerleave', () => tip.hide());
    canvas.addEventListener('keydown', (event) => {
      const by = (this.to - this.from) / 8;
      if (event.key === 'w' || event.key === '+') this.zoom(0.7);
      else if (event.key === 's' || event.key === '-') this.zoom(1 / 0.7);
      else if (event.key === 'a' || event.key === 'ArrowLeft') this.show(this.from - by, this.to - by);
      else if (event.key === 'd' || event.key === 'ArrowRight') this.show(this.from + by, this.to + by);
      else if (event.key === '0') this.show(0, this.data.end);
      else return;
      event.preventDefault();
    });
  }
}
