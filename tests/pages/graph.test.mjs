/** Tests the page of a reference graph in a browser. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { drawn, folder, launch, open } from './browser.mjs';

const HEAPTIDE = process.env.COMMAND_UNDER_TEST ?? fileURLToPath(new URL('../../build/venv/bin/heaptide', import.meta.url));

/** Each order has three referrers: a list, a dict and the defaults of a function. */
const PROGRAM = `
import heaptide
class Order: pass
orders = [Order() for _ in range(6)]
cache = {f"number {number}": order for number, order in enumerate(orders)}
callbacks = [lambda order=order: order for order in orders]
heaptide.heap_snapshot("job.heap")
`;

let browser;
let directory;
before(async () => {
  directory = folder();
  writeFileSync(join(directory, 'job.py'), PROGRAM);
  execFileSync(join(dirname(HEAPTIDE), 'python'), ['job.py'], { cwd: directory });
  execFileSync(HEAPTIDE, ['heap', 'graph', '--kind', '__main__.Order', '-o', 'graph.html', 'job.heap'], { cwd: directory, stdio: 'ignore' });
  browser = await launch();
});
after(async () => {
  await browser?.close();
  rmSync(directory, { recursive: true });
});

const boxes = (page, wanted) =>
  page.locator(wanted).evaluateAll((all) => all.map((each) => each.getBoundingClientRect().toJSON()));
const overlap = (one, other) =>
  one.left < other.right && other.left < one.right && one.top < other.bottom && other.top < one.bottom;

describe('the page of a reference graph', () => {
  test('can be moved and zoomed with keys, without requests or errors', async () => {
    const { page, requests, errors, close } = await open(browser, join(directory, 'graph.html'));
    const picture = async () => (await boxes(page, '#view svg'))[0];
    const whole = await picture();
    await page.keyboard.press('+');
    await drawn(page);
    const larger = await picture();
    assert.ok(Math.abs(larger.width / whole.width - 1.25) < 0.01);
    await page.keyboard.press('ArrowRight');
    await page.keyboard.press('ArrowDown');
    await drawn(page);
    const moved = await picture();
    assert.ok(moved.left < larger.left && moved.top < larger.top);
    await page.keyboard.press('0');
    await drawn(page);
    assert.deepEqual(await picture(), whole);
    assert.deepEqual([requests, errors], [[], []]);
    await close();
  });

  test('has no label that overlaps another label or a box', async () => {
    const { page, close } = await open(browser, join(directory, 'graph.html'));
    const labels = await boxes(page, 'g.arrow text');
    const all = [...labels, ...(await boxes(page, 'svg g:not(.arrow) > title + rect'))];
    assert.ok(labels.length >= 12);
    for (const label of labels) {
      assert.deepEqual(all.filter((other) => other !== label && overlap(label, other)), []);
    }
    await close();
  });
});
