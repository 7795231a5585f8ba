// @ts-check
// Questions to the timeline: search, sums over an area, what belongs to a span.
import {lowerBound} from './timeline_data.js';

/** @typedef {import('./timeline_data.js').RankSpans} RankSpans @typedef {import('./timeline_view.js').Where} Where */

/**
 * Classes whose name or block holds the text, by rank.
 * @param {RankSpans[]} ranks @param {string} needle @returns {Map<RankSpans, Uint8Array>}
 */
export function matchingClasses(ranks, needle) {
  const low = needle.toLowerCase();
  return new Map(ranks.map((rank) => {
    const hit = rank.strings.map((text) => text.toLowerCase().includes(low));
    return [rank, Uint8Array.from(rank.classes, (c) => (hit[c.name] || hit[c.block] ? 1 : 0))];
  }));
}

/**
 * The nearest match after (or before) a place in the order of (start, rank, place); at the end it goes
 * on from the other end. `index` is its number among `count`.
 * @param {RankSpans[]} ranks @param {Map<RankSpans, Uint8Array>} found @param {Where|null} current
 * @param {number} from where the search begins when there is no current one @param {boolean} forward
 * @returns {{where: Where|null, index: number, count: number}}
 */
export function nextMatch(ranks, found, current, from, forward) {
  const key = current ? {time: current.rank.start[current.place], rank: ranks.indexOf(current.rank), place: current.place}
    : {time: from, rank: -1, place: -1};
  /** @type {{time: number, rank: number, place: number}|null} */ let best = null;
  /** @type {{time: number, rank: number, place: number}|null} */ let wrapped = null;
  const less = (/** @type {typeof key} */ a, /** @type {typeof key} */ b) =>
    a.time !== b.time ? a.time < b.time : a.rank !== b.rank ? a.rank < b.rank : a.place < b.place;
  let count = 0;
  ranks.forEach((rank, r) => {
    const hits = found.get(rank);
    if (!hits || !hits.includes(1)) return;
    for (let place = 0; place < rank.cls.length; ++place) {
      if (!hits[rank.cls[place]]) continue;
      count += 1;
      const at = {time: rank.start[place], rank: r, place};
      const after = less(key, at);
      const before = less(at, key);
      if (forward ? after : before) {
        if (!best || (forward ? less(at, best) : less(best, at))) best = at;
      }
      if (!wrapped || (forward ? less(at, wrapped) : less(wrapped, at))) wrapped = at;
    }
  });
  const chosen = /** @type {typeof key|null} */ (best || wrapped);
  if (!chosen) return {where: null, index: 0, count};
  let index = 1;
  ranks.forEach((rank, r) => {
    const hits = found.get(rank);
    if (!hits || !hits.includes(1)) return;
    for (let place = 0; place < rank.cls.length; ++place) {
      if (hits[rank.cls[place]] && less({time: rank.start[place], rank: r, place}, chosen)) index += 1;
    }
  });
  return {where: {rank: ranks[chosen.rank], place: chosen.place}, index, count};
}

/**
 * Time and count by kind and by name of what lies in an area, clipped to it.
 * @param {import('./timeline_view.js').Row[]} rows @param {string[]} kinds
 * @param {import('./timeline_view.js').Area} area
 */
export function areaSums(rows, kinds, area) {
  /** @type {Map<string, {time: number, count: number}>} */ const byKind = new Map();
  /** @type {Map<string, {time: number, count: number, kind: string}>} */ const byName = new Map();
  let spans = 0;
  for (const {rank, track, y, height} of rows) {
    if (!track || y + height < area.top || y > area.bottom) continue;
    for (let i = lowerBound(rank.end, track.begin, track.end, area.from); i < track.end && rank.start[i] < area.to; ++i) {
      const time = Math.min(area.to, rank.end[i]) - Math.max(area.from, rank.start[i]);
      const cls = rank.classes[rank.cls[i]];
      const kind = kinds[cls.kind];
      const name = rank.strings[cls.name];
      const ofKind = byKind.get(kind) || {time: 0, count: 0};
      ofKind.time += time;
      ofKind.count += 1;
      byKind.set(kind, ofKind);
      const ofName = byName.get(name) || {time: 0, count: 0, kind};
      ofName.time += time;
      ofName.count += 1;
      byName.set(name, ofName);
      spans += 1;
    }
  }
  const sorted = (/** @type {Map<string, any>} */ map) => [...map].sort((a, b) => b[1].time - a[1].time);
  return {spans, byKind: sorted(byKind), byName: sorted(byName)};
}

/**
 * What a span belongs with: its launch or what it launched; the other ranks' parts of its collective.
 * @param {RankSpans[]} ranks @param {Where} where
 * @returns {{launch: Where|null, launched: Where[], members: Where[]}}
 */
export function related(ranks, where) {
  const {rank, place} = where;
  const launch = rank.link[place] >= 0 ? {rank, place: rank.link[place]} : null;
  /** @type {Where[]} */
  const launched = [];
  if (!rank.lanes[rank.laneOf(place)].device) {
    // A graph's launch leads to many kernels: the first ones are enough to see.
    for (let i = 0; i < rank.link.length && launched.length < 200; ++i) {
      if (rank.link[i] === place) launched.push({rank, place: i});
    }
  }
  return {launch, launched, members: members(ranks, where)};
}

/** @param {RankSpans[]} ranks @param {Where} where @returns {Where[]} */
function members(ranks, where) {
  const index = where.rank.collectiveOf.get(where.place);
  if (index === undefined || !where.rank.lanes[where.rank.laneOf(where.place)].device) return [];
  const own = where.rank.collective(index);
  const middle = where.rank.end[where.place];
  /** @type {Where[]} */
  const out = [];
  for (const rank of ranks) {
    if (rank === where.rank || (own.ranks.length > 0 && !own.ranks.includes(rank.rank))) continue;
    if (own.peer >= 0 && rank.rank !== own.peer) continue;
    /** @type {Where|null} */ let best = null;
    for (const [place, other] of rank.collectiveOf) {
      const entry = rank.collectives[other];
      if (entry[2] !== own.sequence || !rank.lanes[rank.laneOf(place)].device) continue;
      const theirs = rank.collective(other);
      const same = own.peer >= 0 ? theirs.peer === where.rank.rank
        : theirs.name === own.name && theirs.ranks.join() === own.ranks.join();
      // Both sides of a collective end at about the same time.
      if (same && (!best || Math.abs(rank.end[place] - middle) < Math.abs(rank.end[best.place] - middle))) {
        best = {rank, place};
      }
    }
    if (best) out.push(best);
  }
  return out;
}
