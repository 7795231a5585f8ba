// The page in headless Chromium: it opens without errors and requests, and its keys, search, jumps,
// tables and themes do what they say.
//   SAMPLE_PAGE=build/bin/sample_page node tests/report/page.test.mjs
import assert from 'node:assert/strict';
import {execFileSync} from 'node:child_process';
import {existsSync, mkdtempSync, rmSync} from 'node:fs';
import {createRequire} from 'node:module';
import {tmpdir} from 'node:os';
import {join} from 'node:path';
import {after, before, beforeEach, test} from 'node:test';
import {pathToFileURL} from 'node:url';

const kSkip = 77;  // what ctest takes as skipped
const browserPath = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'].find(existsSync);

function skip(reason) {
  console.log('SKIPPED: ' + reason);
  process.exit(kSkip);
}

let chromium;
try {
  ({chromium} = createRequire(new URL('../../web/package.json', import.meta.url))('playwright-core'));
} catch {
  skip('playwright-core is not installed: scripts/build_page.sh --check installs it into web/node_modules');
}
if (!browserPath) skip('no chromium: scripts/setup.sh --tests installs it');

const folder = mkdtempSync(join(tmpdir(), 'vitrine_page_'));
const url = pathToFileURL(join(folder, 'page.html')).href;
let browser;
let page;
const errors = [];
const requests = [];

before(async () => {
  execFileSync(process.env.SAMPLE_PAGE, [join(folder, 'page.html')]);
  browser = await chromium.launch({executablePath: browserPath, args: ['--no-sandbox', '--disable-gpu']});
});

after(async () => {
  if (browser) await browser.close();
  rmSync(folder, {recursive: true});
});

beforeEach(async () => {
  if (page) await page.context().close();
  const context = await browser.newContext({viewport: {width: 1400, height: 900}, colorScheme: 'light'});
  await context.setOffline(true);
  page = await context.newPage();
  page.setDefaultTimeout(20000);
  page.on('console', (message) => message.type() === 'error' && errors.push(message.text()));
  page.on('pageerror', (error) => errors.push(String(error)));
  page.on('request', (request) => requests.push(request.url()));
  await page.goto(url);
  await page.waitForSelector('canvas.timeline[data-ready]');
});

const view = () => page.$eval('canvas.timeline', (canvas) => [Number(canvas.dataset.from), Number(canvas.dataset.to)]);
// Waits until the frame that a key or click has asked for is drawn.
const drawn = () => page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
const press = async (key) => {
  await page.keyboard.press(key);
  await drawn();
};

test('opens with every section, without errors and without requests', async () => {
  const filled = await page.$$eval('main > section', (all) => all.filter((s) => s.childElementCount > 0).map((s) => s.id));
  for (const id of ['verdict', 'cards', 'findings', 'shorter', 'charts', 'steps', 'timeline', 'odd', 'comparison', 'pipeline',
                    'communication', 'topology', 'memory', 'tables', 'inputs', 'unknown']) {
    assert.ok(filled.includes(id), 'section ' + id + ' is empty');
  }
  assert.deepEqual(errors, []);
  assert.deepEqual(requests.filter((r) => !r.startsWith('data:') && r !== url), []);
});

test('what would make the step shorter: the rank that bounds the job first, others by choice', async () => {
  const text = async () => (await page.locator('#shorter .panel').textContent()) ?? '';
  assert.match(await text(), /Rank 2, steps 0 to 1: 45\.0 ms a step/);
  const first = page.locator('#shorter tbody tr').first();
  assert.match((await first.textContent()) ?? '', /data loader infinitely fast.*22\.5 ms.*2\.00×/);
  assert.match(await text(), /Not known: no waiting for other ranks \(not matched\)/);
  await page.selectOption('#shorter select', '1');
  assert.match(await text(), /Rank 0, steps 0 to 1: 40\.0 ms a step/);
});

test('names from traces stay text', async () => {
  assert.equal(await page.title(), 'sample <job>');
  assert.equal(await page.locator('img').count(), 0);
  assert.ok((await page.locator('#findings').textContent()).includes('onerror'));
});

test('keys zoom and pan', async () => {
  await page.focus('canvas.timeline');
  await press('0');
  const [from, to] = await view();
  await press('w');
  const [closer, end] = await view();
  assert.ok(closer > from && end < to, 'w zooms in');
  await press('d');
  const [moved, movedEnd] = await view();
  assert.ok(moved > closer && Math.abs(movedEnd - moved - (end - closer)) <= 2, 'd pans right');
  await press('a');
  assert.ok(Math.abs((await view())[0] - closer) <= 2, 'a pans back');
  await press('s');
  assert.ok(Math.abs((await view())[0] - from) <= (to - from) * 0.02, 's zooms out');
});

test('search finds, counts and goes on', async () => {
  await press('/');
  await page.keyboard.type('forward body.3');
  await page.keyboard.press('Enter');
  const status = page.locator('#timeline [role=status]');
  await page.waitForFunction(() => / of /.test(document.querySelector('#timeline [role=status]').textContent));
  const first = await status.textContent();
  assert.match(first, /^\d+ of 32$/);  // 4 ranks, 4 steps, 2 micro-batches
  assert.ok((await page.locator('.details').textContent()).includes('forward body.3'));
  await page.keyboard.press('Enter');
  const number = (text) => Number(text.split(' ')[0]);
  assert.equal(number(await status.textContent()), number(first) + 1);
  await page.keyboard.press('Shift+Enter');
  assert.equal(await status.textContent(), first);
  await page.fill('input.find', 'no such thing');
  await page.keyboard.press('Enter');
  assert.equal(await status.textContent(), 'nothing found');
});

test('a finding leads to its place', async () => {
  const step = await page.evaluate(() => document.querySelector('#findings .finding').dataset.rule);
  assert.equal(step, 'straggler');
  await page.click('#findings .finding button.jump');
  await drawn();
  await page.waitForFunction(() => document.activeElement.matches('canvas.timeline'));
  const [from, to] = await view();
  // Step 1 of rank 2 with a quarter of its length on both sides: 1.5 lengths in all.
  const length = (to - from) / 1.5;
  assert.ok(length > 1e8 && length < 4e8, `a step is shown, not ${length} ns`);
  await page.waitForFunction(() => {
    const box = document.querySelector('canvas.timeline').getBoundingClientRect();
    return box.top < innerHeight && box.bottom > 0;
  });
});

test('a click tells what a span is and what belongs to it', async () => {
  await press('/');
  await page.keyboard.type('all_gather body.2');
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => document.querySelector('.details').textContent.includes('Sequence'));
  const details = await page.locator('.details').textContent();
  assert.ok(details.includes('Last to arrive'), details);
  const ranks = await page.locator('.details .actions button').allTextContents();
  assert.equal(ranks.length, 3);
  await page.locator('.details .actions button').first().click();
  assert.ok((await page.locator('.details').textContent()).includes('all_gather body.2'));
});

test('shift and drag sums an area', async () => {
  await page.locator('canvas.timeline').scrollIntoViewIfNeeded();
  const box = await page.locator('canvas.timeline').boundingBox();
  await page.keyboard.down('Shift');
  await page.mouse.move(box.x + 300, box.y + 60);
  await page.mouse.down();
  await page.mouse.move(box.x + 800, box.y + 180, {steps: 4});
  await page.mouse.up();
  await page.keyboard.up('Shift');
  const text = await page.locator('.details').textContent();
  assert.match(text, /selected, .*spans/);
  assert.ok(text.includes('By kind') && text.includes('forward'), text);
});

test('tables sort and filter', async () => {
  const table = page.locator('#kernels');
  const names = () => table.locator('tbody tr td:first-child').allTextContents();
  assert.equal((await names())[0], 'gemm_kernel');
  await table.getByRole('button', {name: 'total'}).click();
  assert.equal((await names())[2], 'gemm_kernel');
  assert.equal(await table.locator('th[aria-sort=ascending]').count(), 1);
  await table.locator('input[type=search]').fill('NCCL');
  assert.deepEqual(await names(), ['ncclDevKernel_AllReduce']);
  assert.ok((await table.locator('.count').textContent()).startsWith('1 of'));
});

test('light and dark', async () => {
  const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const light = await background();
  await page.click('#theme');
  const dark = await background();
  assert.notEqual(light, dark);
  const brightness = (text) => text.match(/\d+/g).slice(0, 3).reduce((sum, v) => sum + Number(v), 0);
  assert.ok(brightness(dark) < 200 && brightness(light) > 600);
  assert.deepEqual(errors, []);
});

test('a narrow window scrolls nothing sideways', async () => {
  await page.setViewportSize({width: 420, height: 800});
  await drawn();
  const [wide, shown] = await page.evaluate(() => [document.documentElement.scrollWidth, document.documentElement.clientWidth]);
  assert.ok(wide <= shown, `${wide} px of content in ${shown}`);
});
