/** Tests that pages of a real run show the numbers that `heaptide stats` prints. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { copyFileSync, existsSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { drawn, folder, hover, launch, open } from './browser.mjs';
import { dataOf } from './synthetic-data.mjs';

/** The path of the command under test. */
const HEAPTIDE = process.env.COMMAND_UNDER_TEST ?? fileURLToPath(new URL('../../build/venv/bin/heaptide', import.meta.url));
const REGRESSION = fileURLToPath(new URL('../../examples/regression/job.py', import.meta.url));
const EXAMPLE = fileURLToPath(new URL('../../examples/memory-leak/job.py', import.meta.url));

let browser;
let directory;
let stats;
const heaptide = (...words) => execFileSync(HEAPTIDE, words, { cwd: directory, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });

before(async () => {
  assert.ok(existsSync(HEAPTIDE), `no command at ${HEAPTIDE}: make wheel, or name one in COMMAND_UNDER_TEST`);
  directory = folder();
  copyFileSync(EXAMPLE, join(directory, 'job.py'));
  heaptide('run', '-o', 'heaptide-job.py.1.tide', 'job.py');
  stats = JSON.parse(heaptide('stats', '--json', 'heaptide-job.py.1.tide'));
  browser = await launch();
});
after(async () => {
  await browser?.close();
  rmSync(directory, { recursive: true });
});

/** Formats a size in megabytes with three significant digits, as the pages do. */
const megabytes = (bytes) => `${(bytes / 1e6).toPrecision(3)} MB`;
const figure = (page, name) => page.locator(`[data-figure="${name}"]`);

describe('pages of a real run', () => {
  test('the flame graph shows the peak of stats and the leaking line', async () => {
    assert.equal(heaptide('flamegraph', 'heaptide-job.py.1.tide'), 'Wrote heaptide-flamegraph-job.py.1.html\n');
    const file = join(directory, 'heaptide-flamegraph-job.py.1.html');
    assert.ok(statSync(file).size < 500_000);
    const { page, requests, errors, close } = await open(browser, file, { hash: '#measure=leaked&search=perform' });
    assert.equal(await figure(page, 'peak').innerText(), megabytes(stats.metadata.peak_memory));
    const exact = await figure(page, 'peak').locator('..').getAttribute('title');
    assert.equal(Number(exact.replace(/\D/g, '')), stats.metadata.peak_memory);
    assert.match(await page.locator('.search output').innerText(), /^1 frame · 24\.0 MB/);
    await page.keyboard.press('n');
    await drawn(page);
    assert.match(await page.locator('#spoken').innerText(), /^perform, .*job\.py:7, 24\.0 MB/);
    assert.deepEqual([requests, errors], [[], []]);
    await close();
  });

  test('the sums of the flame graph equal those of stats', () => {
    const { own } = dataOf(join(directory, 'heaptide-flamegraph-job.py.1.html'));
    const sum = (values) => values.reduce((all, value) => all + value, 0);
    assert.equal(sum(own.peak.bytes), stats.metadata.peak_memory);
    assert.equal(sum(own.total.bytes), stats.total_bytes_allocated);
    assert.equal(sum(own.total.count), stats.total_num_allocations);
    assert.equal(sum(own.leaked.bytes), stats.heaptide.processes[0].live_bytes);
  });

  test('the stacked heaps of several processes reach exactly the peak of stats', () => {
    const program = `
import os
def hold(n):
    kept = [bytearray(1_000_000) for _ in range(n)]
    del kept[2:]
    return kept
kept = hold(6)
for n in (4, 8):
    if not (child := os.fork()):
        hold(n)
        os._exit(0)
    os.waitpid(child, 0)
`;
    writeFileSync(join(directory, 'forks.py'), program);
    heaptide('run', '-q', '--follow-fork', '-o', 'forks.tide', 'forks.py');
    const captures = readdirSync(directory).filter((name) => name.startsWith('forks.tide'));
    assert.equal(captures.length, 3);
    const { peak_memory } = JSON.parse(heaptide('stats', '--json', ...captures)).metadata;
    heaptide('timeline', '-o', 'forks.html', ...captures);
    const { timeline } = dataOf(join(directory, 'forks.html'));
    const sums = timeline.together.heap.map((_, bin) => timeline.stacked.reduce((sum, heap) => sum + (heap[bin] ?? 0), 0));
    assert.deepEqual(sums, timeline.together.heap.map((sum) => sum ?? 0));
    assert.equal(Math.max(...sums), peak_memory);
  });

  test('the table starts with the largest location of stats', async () => {
    heaptide('table', '-o', 'table.html', 'heaptide-job.py.1.tide');
    const { page, close } = await open(browser, join(directory, 'table.html'), { hash: '#measure=total' });
    const [largest] = stats.top_allocations_by_size;
    assert.equal(await page.locator('tbody td.own .size').first().innerText(), megabytes(largest.size));
    const title = await page.locator('tbody td.own').first().getAttribute('title');
    assert.equal(Number(title.replace(/\D/g, '')), largest.size);
    assert.match(await page.locator('tbody td.name').first().innerText(), /^perform .*job\.py:7/);
    await close();
  });

  test('the comparison page shows the numbers of its JSON', async () => {
    copyFileSync(REGRESSION, join(directory, 'orders.py'));
    heaptide('run', '-o', 'before.tide', 'orders.py');
    heaptide('run', '-o', 'after.tide', 'orders.py', '--cache');
    const json = JSON.parse(heaptide('diff', '--json', 'before.tide', 'after.tide'));
    heaptide('diff', '--html', '-o', 'diff.html', 'before.tide', 'after.tide');
    const { page, requests, errors, close } = await open(browser, join(directory, 'diff.html'), { hash: '#view=table&hideImports=false' });
    const title = await figure(page, 'peak').locator('..').getAttribute('title');
    const { before_bytes, after_bytes } = json.whole.peak;
    assert.deepEqual(title.split('→').map((text) => Number(text.replace(/\D/g, ''))), [before_bytes, after_bytes]);
    const shown = await page.locator('.rows tbody td.change').evaluateAll((cells) => cells.map((cell) => cell.title));
    const numbers = shown.map((text) => Number(text.replace('−', '-').replace(/[^-\d]/g, '')));
    const expected = json.stacks.map((stack) => stack.change_bytes).sort((one, other) => other - one);
    assert.deepEqual(numbers, expected.slice(0, numbers.length));
    assert.ok(numbers.length > 3 && numbers[0] > 5_000_000, `${numbers}`);
    assert.deepEqual([requests, errors], [[], []]);
    await close();
  });

  test('findings have the same text as in stats, and a click shows their frame', async () => {
    const [expected] = stats.heaptide.findings;
    const { page, close } = await open(browser, join(directory, 'heaptide-flamegraph-job.py.1.html'));
    const first = page.locator('.findings ol > li').first();
    assert.equal(await first.getByRole('button').getAttribute('title'), expected.what);
    assert.match(await first.innerText(), new RegExp(expected.advice.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')));
    await first.getByRole('button').click();
    await drawn(page);
    assert.match(await page.evaluate(() => location.hash), /zoom=/);
    await close();
  });

  test('an interval over the whole run has the leaked and the allocated bytes of stats', async () => {
    const { lives } = dataOf(join(directory, 'heaptide-flamegraph-job.py.1.html'));
    const last = lives.edges_ns.length - 1;
    const file = join(directory, 'heaptide-flamegraph-job.py.1.html');
    for (const [kind, bytes] of [['kept', stats.heaptide.processes[0].live_bytes], ['allocated', stats.total_bytes_allocated]]) {
      const { page, close } = await open(browser, file, { hash: `#from=0&to=${last}&kind=${kind}`, reducedMotion: 'reduce' });
      assert.match(await hover(page, 0.5, 0), new RegExp(`\\(${bytes.toLocaleString('en-US')} bytes\\)`));
      await close();
    }
  });

  test('source lines are left out with --no-source', () => {
    heaptide('flamegraph', '--no-source', '-o', 'bare.html', 'heaptide-job.py.1.tide');
    const sources = (name) => dataOf(join(directory, name)).locations.source.filter(Boolean);
    assert.deepEqual(sources('bare.html'), []);
    assert.ok(sources('heaptide-flamegraph-job.py.1.html').includes('kept.append([None] * 1_000_000)'));
  });

  test('the heap page leads to the allocation site in the recording', async () => {
    writeFileSync(
      join(directory, 'shop.py'),
      [
        'import heaptide',
        'class Order:',
        '    def __init__(self):',
        '        self.text = bytearray(50_000)',
        'cache = [Order() for _ in range(200)]',
        "heaptide.heap_snapshot('shop.heap')",
        '',
      ].join('\n'),
    );
    heaptide('run', '--objects', '-o', 'shop.tide', 'shop.py');
    heaptide('heap', 'explore', '-o', 'shop.html', 'shop.heap');
    const { page, requests, errors, close } = await open(browser, join(directory, 'shop.html'), { hash: '#tab=types' });
    await page.getByRole('button', { name: 'bytearray', exact: true }).first().click();
    await drawn(page);
    await page.locator('.instances').getByRole('button').filter({ hasText: '__main__.cache' }).first().click();
    await drawn(page);
    const calls = await page.locator('.object .stack li').allInnerTexts();
    assert.match(calls[0], /__init__\s+.*shop\.py:4$/);
    assert.match(calls[1], /shop\.py:5$/);
    assert.match(await page.locator('.expression').innerText(), /sys\.modules\['__main__'\]\.__dict__\['cache'\]\[\d+\]/);
    assert.deepEqual([requests, errors], [[], []]);
    await close();
  });
});
