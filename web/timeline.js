// @ts-check
// The timeline's section: reads the compressed columns after the page is drawn, and joins view, input,
// search and details.
import {bytes, button, byId, element, exactTime, head, number, percent, plainLegend, ranges, time, whole} from './format.js';
import {decodeRank} from './timeline_data.js';
import {listen} from './timeline_input.js';
import {areaSums, matchingClasses, nextMatch, related} from './timeline_query.js';
import {kindFill} from './timeline_paint.js';
import {TimelineView} from './timeline_view.js';

/** @typedef {import('./timeline_view.js').Where} Where @typedef {import('./timeline_data.js').RankSpans} RankSpans */

const kHint = 'Click a span for what it is and what launched it; shift and drag for sums over an area.';

/** @param {import('./data.js').Page} data @returns {Timeline|null} */
export function showTimeline(data) {
  if (!data.timeline.ranks.some((rank) => rank.shown > 0)) return null;
  return new Timeline(data);
}

export class Timeline {
  /** @param {import('./data.js').Page} data */
  constructor(data) {
    this.data = data;
    this.kinds = data.timeline.kinds;
    const canvas = /** @type {HTMLCanvasElement} */ (element('canvas', {
      tabindex: '0', role: 'application', 'aria-label': 'Timeline', class: 'timeline'}));
    this.details = element('div', {class: 'details', 'aria-live': 'polite'});
    this.status = element('span', {class: 'hint count', role: 'status'});
    this.box = /** @type {HTMLInputElement} */ (element('input', {
      type: 'search', placeholder: 'search ( / )', 'aria-label': 'search the timeline', class: 'find'}));
    this.view = new TimelineView(canvas, this.kinds, data.timeline.end);
    this.view.steps = stepsOf(data);
    this.progress = element('div', {class: 'progress'}, ['Reading the timeline …']);
    const used = new Set(data.timeline.ranks.flatMap((r) => r.kinds.map((k) => this.kinds[k])));
    const fills = new Map(this.kinds.filter((k) => used.has(k) && k !== 'step').map((k) => [k, kindFill(k)]));
    byId('timeline').append(
      head('Timeline', `all ranks${data.job && data.job.ranks.some((r) => r.clock && r.clock.samples > 0) ? ', clocks aligned by their collectives' : ''}`, [
        this.box, button('‹', () => this.next(false), {title: 'previous (shift n)', class: 'step'}),
        button('›', () => this.next(true), {title: 'next (n)', class: 'step'}), this.status,
        button('−', () => this.view.zoom(1.6), {title: 'zoom out (s)'}),
        button('+', () => this.view.zoom(1 / 1.6), {title: 'zoom in (w)'}),
        button('All', () => this.view.show(0, this.view.end), {title: 'everything (0)'})]),
      element('div', {class: 'panel'}, [this.progress, canvas, plainLegend([...fills]), this.details, keys()]));
    listen(this.view, {
      select: (where) => this.select(where), area: () => this.showArea(), search: () => this.box.focus(),
      next: (forward) => this.next(forward), focus: () => canvas.focus()});
    this.listenToSearch();
    this.select(null);
    /** Resolves when every rank is drawn. */
    this.ready = this.read();
    this.ready.catch((error) => {
      this.progress.hidden = false;
      this.progress.textContent = 'The timeline could not be read: ' + error.message;
    });
  }

  async read() {
    /** @type {RankSpans[]} */
    const ranks = [];
    await painted();
    for (const [i, meta] of this.data.timeline.ranks.entries()) {
      this.progress.textContent = `Reading the timeline: rank ${meta.rank} (${i + 1} of ${this.data.timeline.ranks.length}) …`;
      const holder = byId('timeline-' + i);
      ranks.push(await decodeRank((holder.textContent || '').trim(), meta));
      holder.remove();  // the text is as large as what it became
    }
    ranks.sort((a, b) => a.rank - b.rank);
    this.progress.hidden = true;
    this.view.setRanks(ranks);
    this.view.canvas.setAttribute('aria-label', this.view.describe());
    this.view.canvas.dataset.ready = 'true';
    const {steps} = this.view;
    if (steps.length > 3 && !this.view.mark) {
      this.view.show(steps[1].start - (steps[1].end - steps[1].start) * 0.05, steps[Math.min(2, steps.length - 1)].end);
    }
  }

  listenToSearch() {
    let timer = 0;
    this.box.addEventListener('input', () => {
      window.clearTimeout(timer);
      timer = window.setTimeout(() => this.search(this.box.value), 200);
    });
    this.box.addEventListener('keydown', (event) => {
      if (event.key === 'Enter') {
        window.clearTimeout(timer);
        if (this.needle !== this.box.value) this.search(this.box.value);
        else this.next(!event.shiftKey);
      } else if (event.key === 'Escape') {
        this.box.value = '';
        this.search('');
        this.view.canvas.focus();
      } else return;
      event.preventDefault();
    });
    document.addEventListener('keydown', (event) => {
      const typing = event.target instanceof HTMLInputElement || event.target instanceof HTMLSelectElement;
      if (event.key === '/' && !typing && !event.ctrlKey) {
        event.preventDefault();
        byId('timeline').scrollIntoView({block: 'start'});
        this.box.focus({preventScroll: true});
      }
    });
  }

  /** @param {string} needle */
  search(needle) {
    this.needle = needle;
    this.view.found = needle ? matchingClasses(this.view.ranks, needle) : null;
    this.status.textContent = '';
    this.view.draw();
    if (needle) {
      const current = this.view.selected;
      this.view.selected = null;
      this.next(true);
      if (!this.view.selected) this.select(current);
    }
  }

  /** @param {boolean} forward */
  next(forward) {
    if (!this.view.found) return;
    const match = nextMatch(this.view.ranks, this.view.found, this.view.selected, this.view.from, forward);
    this.status.textContent = match.where ? `${whole(match.index)} of ${whole(match.count)}` : 'nothing found';
    if (match.where) this.go(match.where);
  }

  /** Selects a span and brings it into view. @param {Where} where */
  go(where) {
    const {rank, place} = where;
    const {view} = this;
    const span = view.to - view.from;
    const length = rank.end[place] - rank.start[place];
    if (rank.start[place] < view.from || rank.end[place] > view.to || length < span / 2000 || length > span) {
      const wide = Math.max(length * 4, Math.min(span, length * 200), 1000);
      view.show(rank.start[place] - wide / 2 + length / 2, rank.start[place] + wide / 2 + length / 2);
    }
    if (view.folded.has(rank.rank) && !view.rowOf(where)) view.fold(rank.rank);
    const row = view.rowOf(where);
    if (row) view.reveal(row);
    this.select(where);
  }

  /** A finding's place. @param {number} from @param {number} to @param {number} rank */
  async jump(from, to, rank) {
    const {view} = this;
    view.mark = {from, to, rank};
    const room = Math.max((to - from) * 0.25, 500);
    view.show(from - room, to + room);
    byId('timeline').scrollIntoView({behavior: 'auto', block: 'start'});
    await this.ready;
    view.show(from - room, to + room);
    const row = view.rows.find((r) => r.rank.rank === rank);
    if (row) view.reveal(row);
    view.canvas.focus({preventScroll: true});
  }

  /** @param {Where|null} where */
  select(where) {
    this.view.selected = where;
    this.view.linked = [];
    if (!where) {
      this.details.replaceChildren(element('div', {class: 'hint'}, [kHint]));
    } else {
      const links = related(this.view.ranks, where);
      this.view.linked = [...(links.launch ? [links.launch] : []), ...links.launched, ...links.members];
      this.details.replaceChildren(...this.describe(where, links));
    }
    this.view.draw();
  }

  /** @param {Where} where @param {ReturnType<typeof related>} links @returns {Node[]} */
  describe(where, links) {
    const {rank, place} = where;
    const cls = rank.classes[rank.cls[place]];
    const duration = rank.end[place] - rank.start[place];
    /** @type {[string, string][]} */
    const rows = [
      ['Name', rank.strings[cls.name]], ['Kind', this.kinds[cls.kind]],
      ['Rank, lane', `${rank.rank}, ${rank.lanes[rank.laneOf(place)].name}`],
      ['Start', exactTime(rank.start[place])], ['Duration', exactTime(duration)]];
    if (rank.step[place] >= 0) rows.push(['Step', String(rank.step[place])]);
    if (rank.micro[place] >= 0) rows.push(['Micro-batch', String(rank.micro[place])]);
    if (cls.block > 0) rows.push(['Block', rank.strings[cls.block]]);
    if (cls.shapes > 0) rows.push(['Shapes', rank.strings[cls.shapes]]);
    const amount = rank.bytesOf.get(place);
    if (amount) rows.push(['Bytes', `${bytes(amount)}${duration > 0 ? `, ${bytes((amount / duration) * 1e9)}/s` : ''}`]);
    const index = rank.collectiveOf.get(place);
    if (index !== undefined) rows.push(...this.describeCollective(where, rank.collective(index), links.members));
    if (links.launch) {
      const delay = rank.start[place] - rank.end[links.launch.place];
      rows.push(['Launch to start', delay >= 0 ? time(delay, 4) : `begins ${time(-delay, 4)} before its launch ends`]);
    }
    const tools = [];
    if (links.launch) tools.push(button('its launch', () => this.go(/** @type {Where} */ (links.launch))));
    if (links.launched.length > 0) {
      const text = links.launched.length > 1 ? `first of ${links.launched.length} launched` : 'what it launched';
      tools.push(button(text, () => this.go(links.launched[0])));
    }
    for (const member of links.members.slice(0, 16)) {
      tools.push(button('rank ' + member.rank.rank, () => this.go(member), {title: 'the same collective there'}));
    }
    return [...rows.map(([label, value]) => element('div', label === 'Name' || label === 'Shapes' ? {class: 'wide'} : {}, [
      element('span', {}, [label]), element('b', {}, [value])])),
    ...(tools.length ? [element('div', {class: 'wide actions'}, tools)] : [])];
  }

  /**
   * @param {Where} where @param {import('./timeline_data.js').Collective} c @param {Where[]} members
   * @returns {[string, string][]}
   */
  describeCollective(where, c, members) {
    /** @type {[string, string][]} */
    const rows = [['Collective', [c.name, c.dtype].filter((t) => t).join(', ')],
      ['Group', `${c.group}${c.ranks.length ? ` (ranks ${ranges(c.ranks)})` : ''}`]];
    if (c.sequence >= 0) rows.push(['Sequence', String(c.sequence)]);
    rows.push(['Elements in, out', `${whole(c.in)}, ${whole(c.out)}`]);
    if (c.sent > 0) rows.push(['Sent by this rank', bytes(c.sent)]);
    if (c.peer >= 0) rows.push(['Peer', 'rank ' + c.peer]);
    if (members.length > 0) {
      const {rank, place} = where;
      const all = [where, ...members];
      const latest = all.reduce((a, b) => (b.rank.start[b.place] > a.rank.start[a.place] ? b : a));
      const wait = latest.rank.start[latest.place] - rank.start[place];
      rows.push(['Last to arrive', `rank ${latest.rank.rank}${latest === where ? '' : `, ${time(wait, 4)} after this rank`}`]);
      rows.push(['Waiting, then transfer', `${time(Math.min(wait, rank.end[place] - rank.start[place]), 4)}, ` +
        time(Math.max(0, rank.end[place] - latest.rank.start[latest.place]), 4)]);
    }
    return rows;
  }

  showArea() {
    const {area} = this.view;
    if (!area || !(area.to > area.from)) return;
    const sums = areaSums(this.view.rows, this.kinds, area);
    const span = area.to - area.from;
    const rows = (/** @type {[string, {time: number, count: number}][]} */ list) => element('table', {}, [
      element('tbody', {}, list.map(([name, sum]) => element('tr', {}, [
        element('td', {class: 'clipped', title: name}, [element('span', {}, [name])]), element('td', {}, [time(sum.time, 4)]), element('td', {}, [percent(sum.time, span)]),
        element('td', {}, [`${whole(sum.count)} ×`]), element('td', {}, [time(sum.time / sum.count)])])))]);
    this.details.replaceChildren(element('div', {class: 'wide sums'}, [
      element('h3', {}, [`${time(span, 4)} selected, ${number(sums.spans)} spans`]),
      element('p', {class: 'hint'}, ['Durations summed over the chosen rows, clipped to the area; spans inside others count too.']),
      element('div', {class: 'grid'}, [element('div', {}, [element('h3', {}, ['By kind']), rows(sums.byKind)]),
        element('div', {}, [element('h3', {}, ['By name']), rows(sums.byName.slice(0, 15))])])]));
  }
}

/** After what is on the page has been painted. */
function painted() {
  return new Promise((resolve) => {
    const loaded = () => requestAnimationFrame(() => setTimeout(resolve, 0));
    if (document.readyState === 'loading') document.addEventListener('DOMContentLoaded', loaded);
    else loaded();
    // A hidden tab draws no frames.
    if (document.hidden) setTimeout(resolve, 500);
  });
}

/** @param {import('./data.js').Page} data */
function stepsOf(data) {
  const rank = data.job && data.job.time.ranks.find((r) => r.steps.length > 0);
  return rank ? rank.steps.map((s) => ({name: s.name, start: s.start, end: s.start + s.duration})) : [];
}

function keys() {
  const line = element('p', {class: 'hint keys'});
  const all = [['W S', 'zoom'], ['A D', 'pan'], ['0', 'everything'], ['F', 'to the span'], ['/', 'search'], ['N', 'next'],
               ['wheel', 'zoom, once clicked, or with Ctrl'], ['drag', 'pan'], ['shift drag', 'sums'], ['Esc', 'clear']];
  for (const [key, what] of all) line.append(element('kbd', {}, [key]), ` ${what}  `);
  return line;
}
