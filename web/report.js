// @ts-check
// Fills the page from the data that the C++ side has computed and embedded.
import 'uplot/dist/uPlot.min.css';
import './report.css';
import {recolourCharts} from './charts.js';
import {recolourMatrices, showCommunication, showTopology} from './communication.js';
import {showFindings, showOdd} from './findings.js';
import {byId, element} from './format.js';
import {showMemory} from './memory.js';
import {showComparison, showHead, showInputs, showSplit, showUnknown} from './overview.js';
import {showPaths} from './path.js';
import {recolourPipeline, showPipeline} from './pipeline.js';
import {showPlan} from './plan.js';
import {showSteps} from './steps.js';
import {showTables} from './tables.js';
import {showTimeline} from './timeline.js';
import {showCurves, showSamples} from './training.js';

/** Sections in the order of the page, for the bar of links. */
const kSections = [
  ['plan', 'Plan'], ['findings', 'Findings'], ['shorter', 'What if'], ['charts', 'Training'], ['steps', 'Time'], ['timeline', 'Timeline'],
  ['odd', 'What stands out'],
  ['comparison', 'Ranks'], ['pipeline', 'Pipeline'], ['communication', 'Communication'], ['topology', 'Topology'],
  ['memory', 'Memory'], ['tables', 'Tables'], ['samples', 'Samples'], ['inputs', 'Inputs'], ['unknown', 'Not known']];

function showLinks() {
  byId('links').append(...kSections.filter(([id]) => byId(id).childElementCount > 0)
    .map(([id, name]) => element('a', {href: '#' + id}, [name])));
}

function start() {
  const root = document.documentElement;
  const dark = matchMedia('(prefers-color-scheme: dark)');
  root.dataset.theme = location.hash === '#dark' || (dark.matches && location.hash !== '#light') ? 'dark' : 'light';
  const holder = byId('data');
  const data = /** @type {import('./data.js').Page} */ (JSON.parse(holder.textContent || '{}'));
  holder.remove();
  /** @type {import('./timeline.js').Timeline|null} */
  let timeline = null;
  const jump = (/** @type {number} */ from, /** @type {number} */ to, /** @type {number} */ rank) => {
    if (timeline) timeline.jump(from, to, rank);
  };
  showHead(data);
  showSplit(data);
  showPlan(data);
  showFindings(data, jump);
  showPaths(data);
  showCurves(data.metrics);
  showSteps(data, jump);
  timeline = showTimeline(data);
  showOdd(data, jump);
  showComparison(data);
  showPipeline(data, jump);
  showCommunication(data, jump);
  showTopology(data);
  showMemory(data);
  showTables(data, jump);
  showSamples(data.images);
  showInputs(data);
  showUnknown(data);
  showLinks();
  const recolour = () => {
    recolourCharts();
    recolourMatrices();
    recolourPipeline();
    if (timeline) timeline.view.draw();
  };
  byId('theme').addEventListener('click', () => {
    root.dataset.theme = root.dataset.theme === 'dark' ? 'light' : 'dark';
    recolour();
  });
  dark.addEventListener('change', () => {
    root.dataset.theme = dark.matches ? 'dark' : 'light';
    recolour();
  });
}

start();
