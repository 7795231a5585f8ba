// @ts-check
// A rank's timeline from its compressed columns; the layout is in docs/formats/report_page.md.

/**
 * Spans lie lane by lane and track by track; within a track they are ordered by time and none overlaps
 * the next, so that what is visible is found by bisection.
 * @typedef {{lane: number, begin: number, end: number, busy: Float64Array}} Track
 *   begin, end: places of its spans; busy[i]: ns of the i spans before, from the track's first
 * @typedef {{name: string, device: boolean, tracks: Track[]}} Lane
 * @typedef {{name: number, kind: number, block: number, shapes: number}} SpanClass indexes into strings, kinds
 * @typedef {{name: string, group: string, ranks: number[], sequence: number, in: number, out: number,
 *   sent: number, dtype: string, peer: number}} Collective
 * @typedef {{rank: number, lanes: Lane[], strings: string[], classes: SpanClass[],
 *   start: Float64Array, end: Float64Array, cls: Uint32Array, step: Int32Array, micro: Int32Array,
 *   link: Int32Array, laneOf: (place: number) => number, collectiveOf: Map<number, number>,
 *   bytesOf: Map<number, number>, collective: (index: number) => Collective,
 *   collectives: number[][]}} RankSpans
 *   link: of device work the place of the host span that launched it, -1 = not known
 */

/** @param {string} text base64 */
function bytesOfBase64(text) {
  const raw = atob(text);
  const out = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; ++i) out[i] = raw.charCodeAt(i);
  return out;
}

/** @param {Uint8Array<ArrayBuffer>} packed a zlib stream */
async function inflate(packed) {
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('deflate'));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** Variable-length integers, one after the other. */
class Reader {
  /** @param {Uint8Array} data @param {number} at @param {number} length */
  constructor(data, at, length) {
    this.data = data;
    this.at = at;
    this.end = at + length;
    this.before = 0;
  }

  next() {
    let value = 0;
    let unit = 1;
    for (;;) {
      const byte = this.data[this.at++];
      if (byte < 128) return value + byte * unit;
      value += (byte & 127) * unit;
      unit *= 128;
    }
  }

  signed() {
    const value = this.next();
    return value % 2 === 0 ? value / 2 : -(value + 1) / 2;
  }

  delta() {
    this.before += this.signed();
    return this.before;
  }

  get more() {
    return this.at < this.end;
  }
}

/**
 * @param {string} base64 @param {import('./data.js').TimelineRankMeta} meta
 * @returns {Promise<RankSpans>}
 */
export async function decodeRank(base64, meta) {
  const data = await inflate(bytesOfBase64(base64));
  const view = new DataView(data.buffer);
  if (new TextDecoder().decode(data.subarray(0, 4)) !== 'VTL1') throw new Error('the timeline is of another version');
  const headerBytes = view.getUint32(4, true);
  const header = JSON.parse(new TextDecoder().decode(data.subarray(8, 8 + headerBytes)));
  /** @type {Object<string, Reader>} */
  const columns = {};
  let at = 8 + headerBytes;
  for (const [name, length] of header.columns) {
    columns[name] = new Reader(data, at, length);
    at += length;
  }
  return unpack(header, columns, meta);
}

/** @param {any} header @param {Object<string, Reader>} columns @param {import('./data.js').TimelineRankMeta} meta */
function unpack(header, columns, meta) {
  const count = header.spans;
  const start = new Float64Array(count);
  const end = new Float64Array(count);
  const cls = new Uint32Array(count);
  const step = new Int32Array(count);
  const micro = new Int32Array(count);
  const link = new Int32Array(count);
  /** @type {number[]} */
  const laneEnds = [];
  /** @type {Lane[]} */
  const lanes = [];
  let place = 0;
  header.lanes.forEach((/** @type {any} */ lane, /** @type {number} */ index) => {
    const tracks = lane.tracks.map((/** @type {number} */ length) => {
      const begin = place;
      const busy = new Float64Array(length + 1);
      let time = meta.begin;
      for (let i = 0; i < length; ++i, ++place) {
        time += columns.start.next();
        const duration = columns.duration.next();
        start[place] = time;
        end[place] = time + duration;
        busy[i + 1] = busy[i] + duration;
        cls[place] = columns.class.next();
        step[place] = columns.step.delta();
        micro[place] = columns.micro_batch.delta();
        link[place] = columns.link.delta();
      }
      return {lane: index, begin, end: place, busy};
    });
    laneEnds.push(place);
    lanes.push({name: lane.name, device: lane.device, tracks});
  });
  /** @param {Reader} column @param {'delta'|'signed'} how */
  const sparse = (column, how) => {
    const out = new Map();
    let where = 0;
    while (column.more) {
      where += column.next();
      out.set(where, column[how]());
    }
    return out;
  };
  const {strings, groups, collectives} = header;
  return {
    rank: meta.rank, lanes, strings, start, end, cls, step, micro, link,
    classes: header.classes.map((/** @type {number[]} */ c) => ({name: c[0], kind: c[1], block: c[2], shapes: c[3]})),
    laneOf: (/** @type {number} */ p) => laneEnds.findIndex((e) => p < e),
    collectiveOf: sparse(columns.collective, 'delta'), bytesOf: sparse(columns.bytes, 'signed'),
    collectives,
    collective: (/** @type {number} */ i) => {
      const c = collectives[i];
      return {name: strings[c[0]], group: groups[c[1]].name, ranks: groups[c[1]].ranks, sequence: c[2], in: c[3],
              out: c[4], sent: c[5], dtype: strings[c[6]], peer: c[7]};
    },
  };
}

/** The first place in [low, high) whose value is at least `limit`. @param {Float64Array} sorted
 * @param {number} low @param {number} high @param {number} limit */
export function lowerBound(sorted, low, high, limit) {
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < limit) low = middle + 1;
    else high = middle;
  }
  return low;
}
