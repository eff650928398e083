/** Tests the table in a browser. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { drawn, hashOf, open } from './browser.mjs';
import { large, syntheticData, pageOf } from './synthetic-data.mjs';
import { browser, directory } from './shared-browser.mjs';

const SMALL = {
  frames: [
    [0, '<module>', '/srv/job/job.py', 10],
    [1, 'load', '/srv/job/job.py', 20],
    [2, 'parse', '/srv/lib/parse.py', 5],
    [1, 'load', '/srv/job/job.py', 21],
  ],
  own: [
    [3, 0, 6_000_000, 0, 8_000_000],
    [4, 1, 2_000_000, 500_000, 2_000_000],
    [1, 0, 1_000_000, 0, 1_000_000],
  ],
  threads: ['MainThread', 'reader'],
};

const small = (options = {}) => open(browser, pageOf(directory, 'table', syntheticData(SMALL)), options);
const cells = async (page, column) => {
  await drawn(page);
  return page.locator(`tbody td.${column}`).allInnerTexts();
};

describe('the table', () => {
  test('makes no network requests and shows the numbers of its data', async () => {
    const { page, requests, errors, close } = await small();
    assert.deepEqual(await page.locator('tbody td.own .size').allInnerTexts(), ['6.00 MB', '2.00 MB', '1.00 MB', '0 B']);
    assert.deepEqual(await page.locator('tbody td.total .size').allInnerTexts(), ['6.00 MB', '2.00 MB', '9.00 MB', '6.00 MB']);
    assert.deepEqual(await cells(page, 'thread'), ['MainThread', 'reader', '2 threads', 'MainThread']);
    assert.deepEqual([requests, errors], [[], []]);
    await close();
  });

  test('shows sizes and shares completely in wide and narrow windows', async () => {
    for (const width of [1280, 800, 390]) {
      const { page, close } = await small({ viewport: { width, height: 800 } });
      const cut = await page
        .locator('tbody td.own, tbody td.total')
        .evaluateAll((all) => all.filter((cell) => cell.scrollWidth > cell.clientWidth).map((cell) => cell.innerText));
      assert.deepEqual(cut, [], `${width} pixels`);
      await close();
    }
  });

  test('shows the allocators of a row completely, or their number', async () => {
    const own = [0, 1, 2, 3].map((thread) => [1, thread, 1_000_000, 0, 1_000_000]);
    const threads = ['MainThread', 'reader', 'writer', 'timer'];
    const allocators = ['CALLOC', 'MALLOC', 'MMAP', 'PYMALLOC_REALLOC'];
    const rows = [...own, [4, 0, 5, 0, 5], [4, 1, 5, 0, 5], [3, 3, 5, 0, 5]];
    const data = syntheticData({ ...SMALL, own: rows, threads, allocators });
    for (const width of [1920, 1280, 768]) {
      const { page, close } = await open(browser, pageOf(directory, 'table', data, 'allocators'), { viewport: { width, height: 800 } });
      await drawn(page);
      const all = page.locator('tbody td.allocator');
      assert.deepEqual([...new Set(await all.allInnerTexts())].sort(), ['4 allocators', 'calloc, malloc', 'pymalloc_realloc']);
      assert.deepEqual(await all.evaluateAll((cells) => cells.filter((cell) => cell.scrollWidth > cell.clientWidth).map((cell) => cell.innerText)), []);
      const titles = await all.evaluateAll((cells) => cells.map((cell) => cell.title));
      assert.ok(titles.includes('calloc, malloc, mmap, pymalloc_realloc'), titles.join(' | '));
      await close();
    }
  });

  test('sorts by a column in both directions', async () => {
    const { page, close } = await small();
    const sizes = () => cells(page, 'total .size');
    await page.getByRole('button', { name: 'Total', exact: true }).click();
    assert.deepEqual(await sizes(), ['9.00 MB', '6.00 MB', '6.00 MB', '2.00 MB']);
    await page.keyboard.press('2');
    assert.deepEqual(await sizes(), ['2.00 MB', '6.00 MB', '6.00 MB', '9.00 MB']);
    assert.match(await hashOf(page), /sort=total/);
    await close();
  });

  test('groups by function, file and module', async () => {
    const { page, close } = await small();
    await page.getByRole('radio', { name: 'Function' }).click();
    assert.equal((await cells(page, 'name')).length, 3);
    await page.getByRole('radio', { name: 'Module' }).click();
    assert.deepEqual((await cells(page, 'name')).map((text) => text.trim()), ['lib', 'job']);
    await close();
  });

  test('searches by a regular expression and copies the found rows as CSV', async () => {
    const { page, close } = await small({ permissions: ['clipboard-read', 'clipboard-write'] });
    await page.keyboard.press('/');
    await page.keyboard.type('^load');
    assert.equal((await cells(page, 'name')).length, 2);
    assert.equal(await page.locator('.search output').innerText(), '2 rows of 4 · own 2.00 MB');
    await page.getByRole('button', { name: 'Copy as CSV' }).click();
    await page.waitForFunction(() => document.querySelector('.search output').textContent === '2 rows copied');
    const copied = await page.evaluate(() => navigator.clipboard.readText());
    assert.match(copied, /^2000000,2000000,1,1,load,\/srv\/job\/job\.py:21,reader,MALLOC\r?$/m);
    await close();
  });

  test('shows the stacks and callers of a row after a click or Enter', async () => {
    const { page, close } = await small();
    await page.locator('tbody tr', { hasText: 'parse' }).click();
    const detail = page.locator('.row-detail');
    assert.match(await detail.innerText(), /parse[\s\S]*1 caller\s+6\.00 MB load[\s\S]*1 stack/);
    assert.deepEqual(await detail.locator('details ol li').allInnerTexts(), ['parse …/lib/parse.py:5', 'load …/job/job.py:20', '<module> …/job/job.py:10']);
    assert.match(await hashOf(page), /row=/);
    await page.keyboard.press('Escape');
    await detail.waitFor({ state: 'detached' });
    await page.locator('.rows').focus();
    for (const key of ['ArrowDown', 'ArrowDown', 'Enter']) await page.keyboard.press(key);
    assert.match(await detail.innerText(), /^load/);
    await close();
  });

  test('renders only the visible rows', async () => {
    const { page, close } = await open(browser, pageOf(directory, 'table', large(50_000), 'large-table'));
    const [n, rows] = await page.evaluate(() => [
      Number(document.querySelector('.rows table').getAttribute('aria-rowcount')),
      document.querySelectorAll('tbody tr').length,
    ]);
    assert.ok(n > 10_000 && rows < 100, `${rows} of ${n} rows`);
    await page.locator('.rows').evaluate((box) => (box.scrollTop = box.scrollHeight));
    await page.waitForFunction((last) => document.querySelector(`tr[aria-rowindex="${last}"]`), n);
    await close();
  });

  test('shows only the rows of a finding after a click on it', async () => {
    const place = { function: 'parse', file: '/srv/lib/parse.py', line: 5 };
    const finding = { kind: 'holds_most', what: 'parse holds most', evidence: [], advice: '', place, caller: null, node: 3 };
    const data = syntheticData({ ...SMALL, head: { findings: [finding] } });
    const { page, close } = await open(browser, pageOf(directory, 'table', data, 'findings-table'), { hash: '#grouping=module' });
    await page.getByRole('button', { name: 'parse holds most' }).click();
    assert.deepEqual(await cells(page, 'own .size'), ['6.00 MB']);
    await close();
  });

  test('shows hostile names as text', async () => {
    const name = '</script><img src=x onerror="window.hacked=1">';
    const data = syntheticData({ frames: [[0, name, `/srv/${name}.py`, 1]], own: [[1, 0, 10, 10, 10]], threads: [name] });
    const { page, close } = await open(browser, pageOf(directory, 'table', data, 'hostile-table'));
    assert.match((await cells(page, 'name'))[0], /<img src=x onerror=/);
    assert.equal(await page.locator('img').count(), 0);
    assert.equal(await page.evaluate(() => window.hacked), undefined);
    await close();
  });
});
