/** Tests the heap page in a browser. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { drawn, hashOf, open } from './browser.mjs';
import { COMPARED, head, SHOP } from './heap-data.mjs';
import { pageOf } from './synthetic-data.mjs';
import { browser, directory } from './shared-browser.mjs';

const show = (data, name, options = {}) => open(browser, pageOf(directory, 'heap', data, name), options);
const text = async (page, selector) => {
  await drawn(page);
  return page.locator(selector).innerText();
};

describe('the heap page', () => {
  test('opens on the suspects, or on the types if there are none', async () => {
    const suspicious = await show(SHOP, 'suspicious');
    assert.match(await text(suspicious.page, '.suspects'), /1000 × job\.Order accumulate/);
    await suspicious.close();
    const innocent = await show({ ...SHOP, head: head({ suspects: [] }) }, 'innocent');
    assert.equal(await innocent.page.locator('tbody td.name').count(), 4);
    await innocent.close();
  });

  test('makes no network requests and sorts types by retained size', async () => {
    // In the data, the type that retains most is last.
    const kinds = [...SHOP.kinds].reverse();
    const objects = { ...SHOP.objects, kind: SHOP.objects.kind.map((at) => kinds.length - 1 - at) };
    const { page, requests, errors, close } = await show({ ...SHOP, kinds, objects }, 'kinds', { hash: '#tab=types' });
    assert.deepEqual(await page.locator('tbody td.name').allInnerTexts(), ['module', 'dict of module', 'dict', 'job.Order']);
    assert.deepEqual(await page.locator('tbody td.total .size').allInnerTexts(), ['1.90 MB', '1.90 MB', '1.50 MB', '1.46 MB']);
    await page.getByRole('button', { name: 'Objects', exact: true }).click();
    await drawn(page);
    assert.equal((await page.locator('tbody td.name').allInnerTexts())[0], 'job.Order');
    assert.deepEqual([requests, errors], [[], []]);
    await close();
  });

  test('shows numbers of objects completely in a narrow window', async () => {
    const kinds = SHOP.kinds.map((kind) => ({ ...kind, count: kind.count * 10_000 }));
    const { page, close } = await show({ ...SHOP, kinds }, 'many', { hash: '#tab=types', viewport: { width: 400, height: 800 } });
    const cut = await page
      .locator('tbody td.allocations')
      .evaluateAll((cells) => cells.filter((cell) => cell.scrollWidth > cell.clientWidth).map((cell) => cell.innerText));
    assert.deepEqual(cut, []);
    assert.ok((await page.locator('tbody td.allocations').allInnerTexts()).includes('10,000,000'));
    await close();
  });

  test('leads from a type to an object, its referrers, dominators and allocation stack', async () => {
    const { page, errors, close } = await show(SHOP, 'drill', { hash: '#tab=types' });
    await page.getByRole('button', { name: 'job.Order', exact: true }).click();
    assert.match(await text(page, '.instances'), /998 smaller ones, not in this page/);
    assert.match(await text(page, '.instances .stack'), /^load\s+\/srv\/job\.py:17/);
    await page.getByRole('button', { name: "job.cache['a']" }).click();
    assert.match(await text(page, '.object h2'), /job\.Order\s+job\.cache\['a'\]/);
    assert.match(await text(page, '.expression'), /sys\.modules\['job'\]\.__dict__\['cache'\]\['a'\]/);
    assert.match(await text(page, '.stack'), /^load\s+\/srv\/job\.py:17/);
    assert.match(await text(page, '.object .tree'), /dict job\.cache/);
    assert.match(await hashOf(page), /object=0x40/);
    await page.locator('.object .links').first().getByRole('button').click();
    assert.match(await text(page, '.object h2'), /dict\s+job\.cache/);
    assert.match(await text(page, '.object .tree'), /998 more, not in this page/);
    await page.getByRole('button', { name: '← Back' }).click();
    assert.match(await text(page, '.object h2'), /job\.Order/);
    assert.deepEqual(errors, []);
    await close();
  });

  test('can be navigated by keyboard', async () => {
    const { page, close } = await show(SHOP, 'keys');
    await page.keyboard.press('3');
    assert.match(await text(page, '.dominators'), /sys\.modules\['job'\]/);
    await page.keyboard.press('1');
    assert.match(await text(page, '.suspects'), /1000 × job\.Order accumulate/);
    await page.getByRole('button', { name: 'Show it' }).focus();
    await page.keyboard.press('Enter');
    assert.match(await text(page, '.object h2'), /dict\s+job\.cache/);
    await page.keyboard.press('Backspace');
    assert.match(await text(page, '.suspects'), /bound it/);
    await page.keyboard.press('/');
    await page.keyboard.type('order');
    await drawn(page);
    assert.deepEqual(await page.locator('tbody td.name').allInnerTexts(), ['job.Order']);
    await page.keyboard.press('Enter');
    assert.match(await text(page, '.instances'), /job\.cache\['a'\]/);
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
    assert.match(await text(page, '.object h2'), /dict\s+job\.cache/);
    await close();
  });
});
