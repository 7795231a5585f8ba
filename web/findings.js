// @ts-check
// Findings as cards; their evidence leads to the place in the timeline.
import {button, byId, element, head, percent, plainTable, ranges, time} from './format.js';

/** @typedef {import('./data.js').Page} Page @typedef {import('./data.js').Finding} Finding */

/** @type {Object<string, string>} */
const kMarks = {critical: '!!', warning: '!', note: 'i'};

/** @param {Page} data @param {import('./data.js').Jump} jump */
export function showFindings(data, jump) {
  if (!data.diagnosis || data.diagnosis.findings.length === 0) return;
  const {findings, per_step: perStep} = data.diagnosis;
  const serious = findings.filter((f) => f.severity !== 'note');
  const notes = findings.filter((f) => f.severity === 'note');
  const section = byId('findings');
  section.append(head('Findings', 'most costly first; a place leads to the timeline'),
                 ...serious.map((f) => card(f, jump, perStep)));
  if (notes.length === 0) return;
  section.append(element('details', serious.length ? {} : {open: ''}, [
    element('summary', {}, [`${notes.length} note${notes.length > 1 ? 's' : ''}, each under 2 % of the ${perStep ? 'step' : 'trace'}, no fault, or not of time`]),
    ...notes.map((f) => card(f, jump, perStep))]));
}

/** @param {Finding} finding @param {import('./data.js').Jump} jump @param {boolean} perStep */
function card(finding, jump, perStep) {
  const tags = [];
  if (finding.cost > 0) tags.push(time(finding.cost) + (perStep ? ' a step' : ''));
  if (finding.share > 0) tags.push(`${percent(finding.share, 1)} of the ${perStep ? 'step' : 'trace'}`);
  if (finding.ranks.length > 0) tags.push(`rank ${ranges(finding.ranks)}`);
  if (finding.steps.length > 0) tags.push(`step ${ranges(finding.steps)}`);
  if (finding.confidence > 0) tags.push(`confidence ${Math.round(100 * finding.confidence)} %`);
  const body = [element('p', {class: 'summary'}, [finding.summary])];
  if (finding.cause) body.push(labelled('Cause', [finding.cause]));
  if (finding.fix.length > 0) {
    body.push(labelled('Change', finding.fix.length === 1 ? [finding.fix[0]]
      : [element('ul', {}, finding.fix.map((text) => element('li', {}, [text])))]));
  }
  if (finding.gain) body.push(labelled('Gain', [finding.gain]));
  if (finding.evidence.length > 0) {
    body.push(labelled('Evidence', [element('ul', {class: 'evidence'}, finding.evidence.map((item) => {
      const line = element('li', {}, [item.text + ' ']);
      if (item.begin !== undefined && item.end !== undefined) {
        const {begin, end, rank} = item;
        line.append(button('show', () => jump(begin, end, rank), {class: 'jump',
          'aria-label': 'show in the timeline'}));
      }
      return line;
    }))]));
  }
  return element('article', {class: 'finding ' + finding.severity, 'data-rule': finding.rule}, [
    element('div', {class: 'finding-head'}, [
      element('span', {class: 'mark', title: finding.severity}, [kMarks[finding.severity] || 'i']),
      element('h3', {}, [finding.title || finding.rule]),
      element('span', {class: 'severity'}, [finding.severity]),
      element('div', {class: 'tags'}, tags.map((text) => element('span', {}, [text])))]),
    ...body]);
}

/** @param {string} label @param {(Node|string)[]} content */
function labelled(label, content) {
  return element('div', {class: 'labelled'}, [element('b', {}, [label]), element('div', {}, content)]);
}

/** Stragglers and outlier steps: measured, whether or not a rule speaks of them. @param {Page} data
 * @param {import('./data.js').Jump} jump */
export function showOdd(data, jump) {
  if (!data.job) return;
  const {stragglers, outliers} = data.job;
  const parts = [];
  if (data.job.ranks.length > 1) {
    const text = stragglers.rows.length > 0 ? stragglers.note
      : stragglers.tested ? 'No rank is late more often than chance would make it. ' + stragglers.note
        : 'Not tested. ' + stragglers.note;
    parts.push(element('div', {class: 'panel'}, [element('h3', {}, ['Stragglers']),
      ...(text ? [element('p', {}, [text])] : []),
      ...(stragglers.rows.length ? [plainTable(['rank', 'last in', 'others wait a step', 'by chance', 'reason', 'evidence'],
        stragglers.rows.map((r) => [String(r.rank), `${r.steps} of ${r.of_steps} steps`, time(r.cost),
          r.p < 1e-4 ? 'p < 0.0001' : `p = ${r.p.toPrecision(2)}`, r.reason,
          [r.evidence, ...r.more].filter((t) => t).join('; ')]), 'wrapped')] : [])]));
  }
  if (outliers.length > 0) {
    parts.push(element('div', {class: 'panel'}, [element('h3', {}, ['Outlier steps']),
      plainTable(['rank', 'step', 'over the median', 'cause', 'evidence', ''], outliers.map((o) => [
        String(o.rank), o.step, time(o.excess), o.cause, o.evidence,
        button('show', () => jump(o.begin, o.end, o.rank), {class: 'jump'})]), 'wrapped')]));
  }
  if (parts.length > 0) byId('odd').append(head('What stands out', 'ranks and steps'), ...parts);
}
