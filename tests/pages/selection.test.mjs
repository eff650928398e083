/** Tests selections within a page: a selected frame, an interval, one thread of hundreds, a zoomed chart. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { drag, drawn, hashOf, hover, open } from './browser.mjs';
import { LINES, PLOT, recording } from './examples.mjs';
import { pageOf, syntheticData } from './synthetic-data.mjs';
import { browser, directory } from './shared-browser.mjs';

const show = (template, data, options = {}) => open(browser, pageOf(directory, template, data, `${template}-part`), { reducedMotion: 'reduce', ...options });
const figure = async (page, name) => {
  await drawn(page);
  return page.locator(`[data-figure="${name}"]`).innerText();
};

describe('a selected frame', () => {
  test('offers its stack as a traceback, and its line to an editor', async () => {
    const { page, close } = await show('flamegraph', recording(), { permissions: ['clipboard-read', 'clipboard-write'] });
    await hover(page, 0.1, 3);
    await page.mouse.down();
    await page.mouse.up();
    await page.getByRole('button', { name: 'Copy stack' }).click();
    await page.locator('.frame output', { hasText: 'copied' }).waitFor();
    const stack = await page.evaluate(() => navigator.clipboard.readText());
    assert.match(stack, /^Traceback[^\n]*\n {2}File "\/srv\/job\/job\.py", line 10, in <module>\n[^]*line 5, in parse\n$/);
    const address = () => page.locator('#editor').getAttribute('href');
    assert.equal(await address(), 'vscode://file/srv/site-packages/lib/parse.py:5');
    await page.getByLabel('Editor').selectOption({ label: 'PyCharm' });
    assert.match(await address(), /^jetbrains:\/\/pycharm.*parse\.py:5$/);
    await close();
  });
});

describe('a selected interval', () => {
  test('changes the figures of the header; the heading of the findings names the whole run', async () => {
    const { page, close } = await show('flamegraph', recording());
    assert.equal(await figure(page, 'total allocated'), '11.0 MB');
    await drag(page, 0.26, 0.74);
    assert.match(await hashOf(page), /from=1&to=3/);
    assert.equal(await figure(page, 'figures of'), '500 ms – 1.50 s');
    assert.equal(await figure(page, 'total allocated'), '8.00 MB');
    assert.match(await page.locator('.findings h2').innerText(), /^Findings of the whole run/);
    await page.keyboard.press('x');
    assert.equal(await figure(page, 'total allocated'), '11.0 MB');
    await close();
  });
});

describe('the list of threads', () => {
  test('finds one of 600 by its name', async () => {
    const threads = Array.from({ length: 600 }, (_, at) => `worker-${at}`);
    const own = threads.map((_, at) => [1, at, 1000 + at, 0, 1000 + at]);
    const { page, close } = await show('flamegraph', syntheticData({ frames: [[0, 'main', '/srv/job/job.py', 1]], own, threads }));
    await page.keyboard.press('t');
    const panel = page.getByRole('dialog', { name: 'Process, thread and job' });
    assert.ok((await panel.getByRole('radio').count()) <= 101);
    await page.keyboard.type('worker-437');
    await panel.getByRole('radio', { name: 'worker-437' }).click();
    await page.keyboard.press('Escape');
    await panel.waitFor({ state: 'detached' });
    assert.equal(await hashOf(page), '#thread=437');
    assert.match(await page.locator('#filter').innerText(), /^worker-437/);
    assert.match(await hover(page, 0.5, 1), /main[^]*1,437 bytes/);
    await close();
  });
});

describe('the chart of a timeline', () => {
  test('zooms by keys and by dragging, and hides curves', async () => {
    const { page, requests, errors, close } = await show('plot', PLOT);
    const bars = () => page.locator('.calls span').evaluateAll((all) => all.map((bar) => bar.getBoundingClientRect().width));
    const [whole] = await bars();
    await page.keyboard.press('+');
    await drawn(page);
    assert.ok((await bars())[0] > whole * 1.3);
    await page.keyboard.press('0');
    await drawn(page);
    assert.ok(Math.abs((await bars())[0] - whole) < 1);
    await drag(page, 0.1, 0.4);
    assert.ok((await bars())[0] > whole * 1.3);
    assert.equal(await figure(page, 'peak'), '166 MB');
    await page.keyboard.press('2');
    const pressed = page.locator('.curves button[aria-pressed=true]');
    await page.waitForFunction(() => document.querySelectorAll('.curves button[aria-pressed=true]').length === 1);
    assert.equal(await pressed.innerText(), 'job.py');
    assert.deepEqual([requests, errors], [[], []]);
    await close();
  });
});

describe('the page of lines', () => {
  test('shows sizes, sums and bars, and its code in a narrow window', async () => {
    const { page, close } = await show('lines', LINES, { viewport: { width: 400, height: 800 } });
    const work = page.locator('#function-0');
    assert.match(await work.locator('tfoot').innerText(), /Total\s+\+1\.60 MB/);
    assert.equal(await work.locator('i.more').count(), 1);
    assert.equal(await work.locator('i.less').count(), 1);
    const edges = await work.locator('td.code code').evaluateAll((all) => all.map((code) => code.getBoundingClientRect().right));
    for (const edge of edges) assert.ok(edge <= 400, String(edge));
    await page.keyboard.press('n');
    await page.keyboard.press('n');
    assert.equal(await page.evaluate(() => document.activeElement.id), 'function-1');
    await close();
  });
});
