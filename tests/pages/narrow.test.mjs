/** Tests that pages of recordings fit a window as narrow as a phone or as low as a notebook cell, with readable names. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { open } from './browser.mjs';
import { syntheticData, syntheticDiff, pageOf } from './synthetic-data.mjs';
import { browser, directory } from './shared-browser.mjs';

const FRAMES = [
  [0, '<module>', '/srv/job/job.py', 10],
  [1, 'load', '/srv/job/job.py', 20],
  [1, 'render', '/srv/lib/render.py', 5],
];
const ONE = syntheticData({ frames: FRAMES, own: [[2, 0, 6_000_000, 0, 8_000_000], [3, 0, 2_000_000, 500_000, 2_000_000]] });
const TWO = syntheticDiff({ frames: FRAMES, own: [[2, 1_000_000, 3_000_000], [3, 2_000_000, 1_000_000]] });

/** Opens a page in a window 400 pixels wide, and calls `check` with it. */
async function narrow(template, data, hash, check) {
  const { page, errors, close } = await open(browser, pageOf(directory, template, data), { hash, viewport: { width: 400, height: 800 } });
  const overhang = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  assert.ok(overhang <= 0, `the ${template} page is ${overhang} pixels too wide`);
  await check?.(page);
  assert.deepEqual(errors, []);
  await close();
}
const widthOf = async (page, selector) => (await page.locator(selector).first().boundingBox()).width;

describe('a narrow window', () => {
  test('fits the flame graph', () => narrow('flamegraph', ONE, ''));

  test('leaves room for the names of a table', () =>
    narrow('table', ONE, '', async (page) => assert.ok((await widthOf(page, 'tbody td.name')) >= 150)));

  test('leaves room for the names of a comparison', () =>
    narrow('diff', TWO, '#view=table', async (page) => assert.ok((await widthOf(page, 'tbody td.name')) >= 150)));

  test('leaves room for the processes of a timeline', () =>
    narrow('timeline', ONE, '', async (page) => assert.ok((await widthOf(page, '.processes tbody td')) >= 120)));
});

describe('the legend of a chart', () => {
  test('shows names without colons', () =>
    narrow('flamegraph', ONE, '', async (page) => {
      const ends = await page.evaluate(() =>
        [...document.querySelectorAll('.timeline .u-legend th')].map((head) => getComputedStyle(head, '::after').content),
      );
      assert.ok(ends.length >= 2);
      for (const end of ends) assert.equal(end, 'none');
    }));
});

describe('a low window', () => {
  test('fits the whole graph, as in a notebook cell', async () => {
    const { page, close } = await open(browser, pageOf(directory, 'flamegraph', ONE), { viewport: { width: 950, height: 600 } });
    const box = await page.locator('.graph').boundingBox();
    assert.ok(box.height >= 150 && box.y + box.height <= 600, JSON.stringify(box));
    await close();
  });
});

describe('a long trunk', () => {
  test('of frames that launched the program is scrolled out of view, so that the branches are visible', async () => {
    const trunk = Array.from({ length: 60 }, (_, depth) => [depth, `launch${depth}`, '/srv/kernel.py', depth + 1]);
    const frames = [...trunk, [60, 'load', '/srv/job.py', 1], [60, 'parse', '/srv/job.py', 2]];
    const data = syntheticData({ frames, own: [[61, 0, 6_000_000, 0, 6_000_000], [62, 0, 4_000_000, 0, 4_000_000]] });
    const { page, close } = await open(browser, pageOf(directory, 'flamegraph', data), { reducedMotion: 'reduce' });
    const [top, height] = await page.evaluate(() => {
      const graph = document.querySelector('.graph');
      return [graph.scrollTop, graph.clientHeight];
    });
    // Rows are 22 pixels high; the branches are below the root and 60 frames.
    assert.ok(top > 0 && top < 61 * 22 && top + height >= 62 * 22, `${top} of ${height}`);
    await close();
  });
});
