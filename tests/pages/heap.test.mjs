/** Tests the heap page in a browser. */
import assert from 'node:assert/strict';
import { rmSync } from 'node:fs';
import { after, before, describe, test } from 'node:test';
import { drawn, folder, hashOf, launch, open } from './browser.mjs';
import { pageOf } from './synthetic-data.mjs';

const head = (more) => ({
  format: 1,
  file: 'job.heap',
  command_line: 'job.py --fast',
  pid: 4711,
  host: 'worker-7',
  python: '3.12.1',
  taken: '2026-11-16T02:00:00.000Z',
  stood_still_ns: 12e6,
  count: 1004,
  bytes: 2_000_000,
  unreachable_count: 0,
  unreachable_bytes: 0,
  has_stacks: true,
  warnings: [],
  suspects: [
    {
      what: '1000 × job.Order accumulate in a dict: 1.5 MB',
      evidence: ["held by  sys.modules['job'].__dict__['cache']"],
      advice: 'bound it',
      bytes: 1_500_000,
      object: 2,
    },
  ],
  tops: [0],
  num_tops: 4,
  ...more,
});

/** A module, its dict, a cache in it, and two of a thousand orders in the cache. */
const SHOP = {
  head: head({}),
  kinds: [
    { label: 'module', count: 1, bytes: 72, retained: 1_900_000, objects: [0] },
    { label: 'dict of module', count: 1, bytes: 1000, retained: 1_899_928, objects: [1] },
    { label: 'dict (no owner)', count: 2, bytes: 40_000, retained: 1_500_000, objects: [2] },
    { label: 'job.Order', count: 1000, bytes: 48_000, retained: 1_460_000, objects: [3, 4] },
  ],
  objects: {
    kind: [0, 1, 2, 3, 3],
    address: ['0x10', '0x20', '0x30', '0x40', '0x50'],
    name: ['job', 'job', '1000 items', '', ''],
    bytes: [72, 1000, 39_000, 48, 48],
    retained: [1_900_000, 1_899_928, 1_500_000, 2000, 1460],
    dominator: [-1, 0, 1, 2, 2],
    children: [1, 3, 1000, 1, 1],
    before: [-1, 0, 1, 2, 2],
    via: ["sys.modules['job']", '.__dict__', "['cache']", "['a']", "['b']"],
    num_referrers: [1, 2, 1, 1, 3],
    referrers: [[], [0, '.__dict__'], [1, "['cache']"], [2, "['a']"], [2, "['b']"]],
    is_new: [0, 0, 0, 1, 0],
    is_reachable: [1, 1, 1, 1, 1],
    stack: [0, 0, 0, 3, 0],
  },
  stacks: [
    {
      number: 3,
      frames: [
        { function: 'main', file: '/srv/job.py', line: 3 },
        { function: 'load', file: '/srv/job.py', line: 17 },
      ],
    },
  ],
};

const COMPARED = {
  ...SHOP,
  head: head({ before: { count: 500, bytes: 1_000_000, same_process: true, num_new: 600, num_gone: 96 } }),
  kinds: SHOP.kinds.map((kind, at) => ({ ...kind, before_count: 1, before_bytes: at === 3 ? 8_000 : kind.bytes, new: at === 3 ? 600 : 0, gone: 0 })),
};

let browser;
let pages;
before(async () => {
  browser = await launch();
  pages = folder();
});
after(async () => {
  await browser.close();
  rmSync(pages, { recursive: true });
});

const show = (data, name, options = {}) => open(browser, pageOf(pages, 'heap', data, name), options);
const text = async (page, selector) => {
  await drawn(page);
  return page.locator(selector).innerText();
};

describe('the heap page', () => {
  test('makes no network requests and sorts kinds by retained size', async () => {
    const { page, requests, errors, close } = await show(SHOP, 'kinds');
    assert.deepEqual(await page.locator('tbody td.name').allInnerTexts(), ['module', 'dict of module', 'dict (no owner)', 'job.Order']);
    assert.deepEqual(await page.locator('tbody td.total .size').allInnerTexts(), ['1.90 MB', '1.90 MB', '1.50 MB', '1.46 MB']);
    await page.getByRole('button', { name: 'Objects', exact: true }).click();
    await drawn(page);
    assert.equal((await page.locator('tbody td.name').allInnerTexts())[0], 'job.Order');
    assert.deepEqual([requests, errors], [[], []]);
    await close();
  });

  test('leads from a kind to an object, its referrers, dominators and allocation stack', async () => {
    const { page, errors, close } = await show(SHOP, 'drill');
    await page.getByRole('button', { name: 'job.Order', exact: true }).click();
    assert.match(await text(page, '.instances'), /998 smaller ones, not in this page/);
    await page.getByRole('button', { name: '0x40' }).click();
    assert.match(await text(page, '.expression'), /sys\.modules\['job'\]\.__dict__\['cache'\]\['a'\]/);
    assert.match(await text(page, '.stack'), /^load\s+\/srv\/job\.py:17/);
    assert.match(await text(page, '.object .tree'), /dict \(no owner\) 1000 items/);
    assert.match(await hashOf(page), /object=0x40/);
    await page.locator('.object .links').first().getByRole('button').click();
    assert.match(await text(page, '.object h2'), /dict \(no owner\)/);
    assert.match(await text(page, '.object .tree'), /998 more, not in this page/);
    await page.getByRole('button', { name: '← Back' }).click();
    assert.match(await text(page, '.object h2'), /job\.Order/);
    assert.deepEqual(errors, []);
    await close();
  });

  test('can be navigated by keyboard', async () => {
    const { page, close } = await show(SHOP, 'keys');
    await page.keyboard.press('2');
    assert.match(await text(page, '.dominators'), /sys\.modules\['job'\]/);
    await page.keyboard.press('3');
    assert.match(await text(page, '.suspects'), /1000 × job\.Order accumulate/);
    await page.getByRole('button', { name: 'Show it' }).focus();
    await page.keyboard.press('Enter');
    assert.match(await text(page, '.object h2'), /dict \(no owner\)/);
    await page.keyboard.press('Backspace');
    assert.match(await text(page, '.suspects'), /bound it/);
    await page.keyboard.press('/');
    await page.keyboard.type('order');
    await drawn(page);
    assert.deepEqual(await page.locator('tbody td.name').allInnerTexts(), ['job.Order']);
    await page.keyboard.press('Enter');
    assert.match(await text(page, '.instances'), /0x40/);
    await page.keyboard.press('Backspace');
    await page.keyboard.press('/');
    await page.keyboard.press('Escape');
    await page.keyboard.press('?');
    assert.match(await text(page, 'dialog.help'), /Backspace/);
    await close();
  });

  test('shows changes since an earlier snapshot', async () => {
    const { page, close } = await show(COMPARED, 'compared');
    assert.equal((await page.locator('tbody td.name').allInnerTexts())[0], 'job.Order');
    assert.equal((await page.locator('tbody td.change .size').allInnerTexts())[0], '+40.0 kB');
    assert.equal((await page.locator('tbody td.after').allInnerTexts())[0], '600');
    assert.equal(await text(page, '[data-figure=change]'), '+1.00 MB');
    await close();
  });

  test('opens at the object in its address', async () => {
    const { page, close } = await show(SHOP, 'address', { hash: '#object=0x30' });
    assert.match(await text(page, '.object h2'), /dict \(no owner\)/);
    await close();
  });
});
