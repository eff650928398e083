/** Tests the comparison page in a browser: its colours, graph and table. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { drawn, hashOf, hover, open } from './browser.mjs';
import { syntheticDiff, pageOf } from './synthetic-data.mjs';
import { browser, directory } from './shared-browser.mjs';

const SMALL = {
  frames: [
    [0, '<module>', '/srv/job/job.py', 10],
    [1, 'load', '/srv/job/job.py', 20],
    [1, 'load', '/srv/job/job.py', 21],
    [1, 'render', '/srv/lib/render.py', 5],
    [1, 'same', '/srv/lib/render.py', 9],
  ],
  own: [
    [2, 1_000_000, 0],
    [3, 0, 4_000_000],
    [4, 2_000_000, 1_000_000],
    [5, 3_000_000, 3_000_000],
  ],
};

const small = (options = {}, more = {}) =>
  open(browser, pageOf(directory, 'diff', syntheticDiff({ ...SMALL, ...more })), { reducedMotion: 'reduce', ...options });
const cells = async (page, column) => {
  await drawn(page);
  return page.locator(`tbody td.${column}`).allInnerTexts();
};
/** Returns red, green and blue of the canvas at a share of the width, in a row. */
const colourAt = (page, x, row) =>
  page.evaluate(
    ([x, row]) => {
      const canvas = document.querySelector('canvas[role=application]');
      const density = canvas.width / canvas.clientWidth;
      const at = canvas.getContext('2d').getImageData(x * canvas.width, (row * 22 + 3) * density, 1, 1);
      return [...at.data.slice(0, 3)];
    },
    [x, row],
  );

describe('the comparison page', () => {
  test('makes no network requests and raises no errors while it is used', async () => {
    const { page, requests, errors, close } = await small();
    for (const key of ['w', 'w', 'w', 'w', 'i', 'l', 'i', 'm', 'm', 'm', 'b', 'b', 'o', 'o', 'v', 'g', 'g', 'g', 'g', 'g', '2', '5', '1', 'v', 'd', '?', 'Escape']) {
      await page.keyboard.press(key);
    }
    await drawn(page);
    assert.deepEqual([requests, errors], [[], []]);
    await close();
  });

  test('shows the total change with the values before and after', async () => {
    const { page, close } = await small();
    const figure = page.locator('[data-figure="peak"]');
    assert.match(await figure.innerText(), /^\+2\.00 MB\s+\+33%$/);
    assert.match(await figure.locator('..').innerText(), /peak: 6\.00 MB → 8\.00 MB/);
    assert.match(await page.locator('.about').innerText(), /before\s+before\.tide[\s\S]*after\s+after\.tide/);
    await close();
  });

  test('draws functions as wide as their change, in red for growth and green for shrinkage', async () => {
    const { page, close } = await small();
    // load grew by 3 MB, render shrank by 1 MB, and unchanged functions are not shown.
    const text = await hover(page, 0.3, 2);
    assert.match(text, /load/);
    assert.match(text, /change\s+\+3\.00 MB/);
    assert.match(text, /before\s+1\.00 MB \(1,000,000 bytes\)/);
    assert.match(text, /after\s+4\.00 MB \(4,000,000 bytes\)/);
    assert.match(await hover(page, 0.9, 2), /render[\s\S]*change\s+−1\.00 MB[\s\S]*−50%/);
    await page.mouse.move(0, 0);
    await drawn(page);
    const [red, green] = [await colourAt(page, 0.3, 2), await colourAt(page, 0.9, 2)];
    assert.ok(red[0] > red[1] && green[1] > green[0], `${red} ${green}`);
    await close();
  });

  test('can distinguish lines, and show the values before or after', async () => {
    const { page, close } = await small();
    await page.keyboard.press('l');
    assert.match(await hover(page, 0.1, 2), /job\.py:21[\s\S]*\+4\.00 MB \(new\)/);
    await page.getByRole('radio', { name: 'Before', exact: true }).click();
    assert.match(await hover(page, 0.1, 2), /same/);
    assert.equal(await hashOf(page), '#merge=line&width=before');
    await close();
  });

  test('lists stacks with the largest growth first, and a click shows one in the graph', async () => {
    const { page, close } = await small();
    await page.keyboard.press('v');
    assert.deepEqual((await cells(page, 'change .size')), ['+3.00 MB', '−1.00 MB']);
    assert.match((await cells(page, 'name'))[0], /load.*job\.py ← job\.py/);
    await page.keyboard.press('1');
    assert.deepEqual((await cells(page, 'change .size')), ['−1.00 MB', '+3.00 MB']);
    await page.locator('.rows tbody tr').first().click();
    assert.match(await hashOf(page), /zoom=/);
    assert.match(await hover(page, 0.5, 2), /render/);
    await close();
  });

  test('copies the change as CSV', async () => {
    const { page, close } = await small({ hash: '#view=table&grouping=function', permissions: ['clipboard-read', 'clipboard-write'] });
    await page.getByRole('button', { name: 'Copy as CSV' }).click();
    await page.waitForFunction(() => document.querySelector('.search output').textContent === '2 rows copied');
    const copied = await page.evaluate(() => navigator.clipboard.readText());
    assert.match(copied, /^3000000,1000000,4000000,0,false,1,1,load,\/srv\/job\/job\.py,\r?$/m);
    // The message about copied rows disappears with a search, and an invalid expression finds no rows.
    await page.keyboard.press('/');
    await page.keyboard.type('load');
    await drawn(page);
    assert.equal(await page.locator('.search output').innerText(), '1 row · +3.00 MB');
    await page.keyboard.type('(');
    await drawn(page);
    assert.equal(await page.locator('.search output').innerText(), 'invalid regular expression');
    assert.equal(await page.locator('.search input').getAttribute('aria-invalid'), 'true');
    await close();
  });

  test('finds frames and shows the sum of their changes', async () => {
    const { page, close } = await small();
    await page.keyboard.press('/');
    await page.keyboard.type('^load|^render');
    await drawn(page);
    assert.equal(await page.locator('.search output').innerText(), '2 frames · +2.00 MB');
    await close();
  });

  test('marks changes within the sampling noise', async () => {
    const { page, close } = await small({}, { variance: 300_000 });
    assert.match(await page.locator('[data-figure="peak"]').innerText(), /within noise/);
    assert.equal(await page.getByRole('radio', { name: 'Larger' }).getAttribute('aria-checked'), 'true');
    assert.match(await hover(page, 0.9, 2), /render[\s\S]*± 1\.55 MB[\s\S]*within the noise of sampling/);
    await close();
  });

  test('shows hostile names as text', async () => {
    const name = '</script><img src=x onerror="window.hacked=1">';
    const data = syntheticDiff({ frames: [[0, name, `/srv/${name}.py`, 1]], own: [[1, 10, 20]] });
    data.head.diff.after.processes[0] = { file: name, pid: 1, command_line: name };
    data.head.diff.after.warnings = [name];
    const { page, requests, errors, close } = await open(browser, pageOf(directory, 'diff', data, 'hostile-diff'));
    assert.match(await page.locator('h1').innerText(), /onerror=/);
    assert.match(await hover(page, 0.5, 1), /onerror=/);
    assert.equal(await page.locator('img').count(), 0);
    assert.equal(await page.evaluate(() => window.hacked), undefined);
    assert.deepEqual([requests, errors], [[], []]);
    await close();
  });
});
