// @ts-check
// Where the time goes: by rank, by step, by phase, by kernel class, and why the device idles.
import {lineChart, stackedColumns} from './charts.js';
import {byId, chooser, element, head, legend, percent, time} from './format.js';

/** @typedef {import('./data.js').Page} Page @typedef {import('./data.js').Parts} Parts */

/** Name, fill and pattern. @type {[string, string, string|undefined][]} */
export const kParts = [
  ['compute', 'compute', undefined], ['exposed communication', 'communication', 'hatch'],
  ['exposed copies', 'copy', undefined], ['data wait', 'data', 'dots'], ['idle', 'idle', undefined]];

/** @param {Parts} p */
export const partsOf = (p) => [p.compute, p.exposed_communication, p.exposed_copy, p.data_wait, p.idle];

/**
 * One bar of parts, wide parts with their share in words.
 * @param {number[]} parts @param {number} span @param {[string, string, string|undefined][]} [names]
 * @param {number} [scale] the bar's part of the full width
 */
export function stackBar(parts, span, names = kParts, scale = 1) {
  return element('div', {class: 'stack'}, parts.map((part, p) => {
    const share = (100 * part) / span;
    const piece = element('i', {class: 'fill-' + names[p][1], title: `${names[p][0]}: ${time(part)}, ${percent(part, span)}`});
    piece.style.width = share + '%';
    if (share * scale >= 9) piece.append(element('b', {}, [`${share.toFixed(0)} %`]));
    return piece;
  }));
}

/** @param {Page} data @param {import('./data.js').Jump} jump */
export function showSteps(data, jump) {
  if (!data.job) return;
  const {time: measured} = data.job;
  const shown = measured.ranks.filter((r) => r.whole.span > 0);
  if (shown.length === 0) return;
  const section = byId('steps');
  section.append(head('Where the time goes', 'of each rank, from its first device work to its last'),
                 element('div', {class: 'panel'}, [byRank(shown), legend(kParts.map(([name, fill]) => [name, fill])),
    element('p', {class: 'hint'}, ['Each moment counts once, for the first of these that holds. “Hidden” is the ' +
      'share of communication that runs behind compute. Exposed communication over 30 % is bad, under 10 % is ' +
      'what good links give.'])]));
  const grid = element('div', {class: 'grid'});
  if (shown.some((r) => r.steps.length > 1)) grid.append(byStep(measured, shown, jump), stepTimes(shown));
  if (shown.some((r) => r.phases.some((ns) => ns > 0))) grid.append(phases(measured, shown));
  if (shown.some((r) => r.idle_causes.some((ns) => ns > 0))) grid.append(idle(measured, shown));
  section.append(grid);
}

/** @param {import('./data.js').RankTime[]} ranks */
function byRank(ranks) {
  const longest = Math.max(...ranks.map((r) => r.whole.span));
  const rows = ranks.map(({rank, whole}) => {
    const stack = stackBar(partsOf(whole), whole.span, kParts, (0.5 * whole.span) / longest);
    stack.style.width = (100 * whole.span) / longest + '%';
    return element('tr', {}, [
      element('td', {}, ['rank ' + rank]), element('td', {class: 'bar'}, [stack]),
      element('td', {}, [time(whole.span)]),
      ...partsOf(whole).map((part) => element('td', {}, [percent(part, whole.span)])),
      element('td', {}, [percent(whole.overlap, whole.communication)])]);
  });
  const header = ['', '', 'span', 'compute', 'exposed comm.', 'copies', 'data wait', 'idle', 'hidden'];
  return element('div', {class: 'scroll'}, [element('table', {}, [
    element('thead', {}, [element('tr', {}, header.map((name) => element('th', {}, [name])))]),
    element('tbody', {}, rows)])]);
}

/** "ProfilerStep#4" is step 4. @param {import('./data.js').Step} step */
const label = (step) => (step.step >= 0 ? String(step.step) : step.name);

/**
 * @param {import('./data.js').TimeData} data @param {import('./data.js').RankTime[]} ranks
 * @param {import('./data.js').Jump} jump
 */
function byStep(data, ranks, jump) {
  const coloured = (/** @type {string[]} */ names, /** @type {[string, string, string|undefined][]} */ fills) =>
    names.map((name, i) => /** @type {[string, string, string|undefined]} */ ([name, fills[i] ? fills[i][1] : 'm' + i, undefined]));
  /** @type {{name: string, parts: [string, string, string|undefined][], of: (s: import('./data.js').Step) => number[]}[]} */
  const views = [
    {name: 'time', parts: kParts, of: partsOf},
    {name: 'compute by phase', parts: coloured(data.phases, kPhaseFills), of: (s) => s.phases},
    {name: 'idle by cause', parts: coloured(data.idle_causes, []), of: (s) => s.idle_causes}];
  let chosen = {rank: 0, view: 0};
  const holder = element('div');
  const draw = () => {
    const {steps, rank} = ranks[chosen.rank];
    const {parts, of} = views[chosen.view];
    const used = parts.map((_, p) => p).filter((p) => steps.some((s) => of(s)[p] > 0));
    holder.replaceChildren(stackedColumns(steps.map(label), used.map((p) => (
      {name: parts[p][0], colour: parts[p][1], pattern: parts[p][2], values: steps.map((s) => of(s)[p])})),
    (i) => jump(steps[i].start, steps[i].start + steps[i].duration, rank)));
  };
  const pick = (/** @type {Partial<typeof chosen>} */ what) => {
    chosen = {...chosen, ...what};
    draw();
  };
  draw();
  return element('div', {class: 'panel'}, [element('div', {class: 'head'}, [element('h3', {}, ['By step']),
    element('p', {class: 'hint'}, ['a click shows the step']),
    element('div', {class: 'tools'}, [chooser(views.map((v) => v.name), (view) => pick({view}), 'what'),
      ...(ranks.length > 1 ? [chooser(ranks.map((r) => 'rank ' + r.rank), (rank) => pick({rank}))] : [])])]), holder]);
}

/** Step time of every rank: the slow one stands out. @param {import('./data.js').RankTime[]} ranks */
function stepTimes(ranks) {
  const first = ranks[0].steps;
  const series = ranks.slice(0, 8).map((r, i) => ({
    name: 'rank ' + r.rank, colour: 'm' + i,
    values: first.map((step, at) => {
      const found = step.step >= 0 ? r.steps.find((s) => s.step === step.step) : r.steps[at];
      return found ? found.duration : null;
    })}));
  const x = first.map((s, i) => (s.step >= 0 ? s.step : i));
  return element('div', {class: 'panel'}, [element('h3', {}, ['Step time' + (ranks.length > 8 ? ', first 8 ranks' : '')]),
    lineChart(x, series, {yText: (v) => time(v), zero: true, height: 220})]);
}

/** @type {[string, string, string|undefined][]} */
const kPhaseFills = [['forward', 'forward', undefined], ['backward', 'backward', undefined],
                     ['optimizer', 'optimizer', undefined], ['other', 'idle', undefined]];

/** @param {import('./data.js').TimeData} data @param {import('./data.js').RankTime[]} ranks */
function phases(data, ranks) {
  const names = /** @type {[string, string, string|undefined][]} */ (data.phases.map((name, i) =>
    [name, kPhaseFills[i] ? kPhaseFills[i][1] : 'idle', undefined]));
  const panel = element('div', {class: 'panel'}, [element('h3', {}, ['Compute by phase'])]);
  bars(panel, ranks, (r) => r.phases, names);
  panel.append(legend(names.map(([name, fill]) => [name, fill])));
  if (ranks.some((r) => r.classes.some((ns) => ns > 0))) {
    const classes = /** @type {[string, string, string|undefined][]} */ (data.classes.map((name, i) => [name, 'm' + i, undefined]));
    const used = classes.filter((_, i) => ranks.some((r) => r.classes[i] > 0));
    panel.append(element('h3', {class: 'second'}, ['Compute by class of kernel']));
    bars(panel, ranks, (r) => r.classes, classes);
    panel.append(legend(used.map(([name, fill]) => [name, fill])));
  }
  return panel;
}

/** @param {import('./data.js').TimeData} data @param {import('./data.js').RankTime[]} ranks */
function idle(data, ranks) {
  const names = /** @type {[string, string, string|undefined][]} */ (data.idle_causes.map((name, i) =>
    [name, 'm' + i, undefined]));
  const used = names.filter((_, i) => ranks.some((r) => r.idle_causes[i] > 0));
  const panel = element('div', {class: 'panel'}, [element('h3', {}, ['Why the device idles'])]);
  bars(panel, ranks, (r) => r.idle_causes, names);
  panel.append(legend(used.map(([name, fill]) => [name, fill])));
  /** @type {Map<string, number>} */
  const whats = new Map();
  for (const r of ranks) {
    for (const [what, ns] of Object.entries(r.idle_what)) whats.set(what, (whats.get(what) || 0) + ns);
  }
  const rows = [...whats].sort((a, b) => b[1] - a[1]).slice(0, 8);
  if (rows.length > 0) {
    panel.append(element('table', {class: 'second'}, [element('tbody', {}, rows.map(([what, ns]) =>
      element('tr', {}, [element('td', {class: 'wrap'}, [what]), element('td', {}, [time(ns)])])))]));
  }
  return panel;
}

/**
 * A bar a rank, all to the same scale.
 * @param {HTMLElement} panel @param {import('./data.js').RankTime[]} ranks
 * @param {(r: import('./data.js').RankTime) => number[]} values @param {[string, string, string|undefined][]} names
 */
function bars(panel, ranks, values, names) {
  const sums = ranks.map((r) => values(r).reduce((a, b) => a + b, 0));
  const longest = Math.max(...sums, 1);
  ranks.slice(0, 16).forEach((r, i) => {
    if (sums[i] === 0) return;
    const bar = stackBar(values(r), sums[i], names, (0.75 * sums[i]) / longest);
    bar.style.width = (100 * sums[i]) / longest + '%';
    panel.append(element('div', {class: 'bar-row'}, [element('span', {}, ['rank ' + r.rank]),
      element('div', {}, [bar]), element('span', {}, [time(sums[i])])]));
  });
  if (ranks.length > 16) panel.append(element('p', {class: 'hint'}, ['the first 16 ranks']));
}
