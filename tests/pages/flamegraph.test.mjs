/** Tests the flame graph in a browser: its content, its controls, and its drawing speed. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { drawn, hashOf, hover, open } from './browser.mjs';
import { large, syntheticData, pageOf } from './synthetic-data.mjs';
import { browser, directory } from './shared-browser.mjs';

const FRAMES = [
  [0, '<module>', '/srv/job/job.py', 10],
  [1, 'load', '/srv/job/job.py', 20],
  [2, 'parse', '/srv/lib/parse.py', 5],
  [1, '_find_and_load', '<frozen importlib._bootstrap>', 1],
  [4, 'parse', '/srv/lib/parse.py', 5],
  [1, 'load', '/srv/job/job.py', 21],
];
const OWN = [
  [3, 0, 6_000_000, 0, 8_000_000],
  [5, 0, 1_000_000, 1_000_000, 2_000_000],
  [6, 1, 2_000_000, 500_000, 2_000_000],
  [1, 0, 1_000_000, 0, 1_000_000],
];
const SMALL = { frames: FRAMES, own: OWN, threads: ['MainThread', 'reader'] };

const figure = (page, name) => page.locator(`[data-figure="${name}"]`).innerText();
const searchResult = async (page) => {
  await drawn(page);
  return page.locator('.search output').innerText();
};
const spoken = async (page) => {
  await drawn(page);
  return page.locator('#spoken').innerText();
};

async function small(options = {}, more = {}) {
  return open(browser, pageOf(directory, 'flamegraph', syntheticData({ ...SMALL, ...more })), { reducedMotion: 'reduce', ...options });
}

describe('the flame graph', () => {
  test('makes no network requests and raises no errors while it is used', async () => {
    const { page, requests, errors, close } = await small();
    for (const key of ['i', 'l', 'h', 's', 'o', 'm', 'b', 'd', 'm', 'm', 'b', 's', 'i', '?', 'Escape']) await page.keyboard.press(key);
    await drawn(page);
    assert.deepEqual(requests, []);
    assert.deepEqual(errors, []);
    await close();
  });

  test('shows no totals if the capture does not contain them', async () => {
    const { page, errors, close } = await small({}, { head: { measures: ['peak', 'leaked'] } });
    assert.equal(await figure(page, 'live at the end'), '1.50 MB');
    assert.equal(await page.locator('[data-figure="total allocated"], [data-figure=allocations]').count(), 0);
    assert.equal(await page.getByRole('radio', { name: 'Total' }).count(), 0);
    assert.deepEqual(errors, []);
    await close();
  });

  test('shows the numbers of its data', async () => {
    const { page, close } = await small();
    assert.equal(await figure(page, 'peak'), '10.0 MB');
    assert.equal(await figure(page, 'live at the end'), '1.50 MB');
    assert.equal(await figure(page, 'total allocated'), '13.0 MB');
    assert.equal(await page.locator('h1').innerText(), 'job.py --fast');
    const text = await hover(page, 0.3, 2);
    assert.match(text, /load/);
    assert.match(text, /job\.py:20/);
    assert.match(text, /6\.00 MB \(6,000,000 bytes\)/);
    assert.match(text, /of the total\s+60%/);
    await close();
  });

  test('zooms in by a click and out by Backspace, and keeps the zoom in the address', async () => {
    const { page, close } = await small();
    await hover(page, 0.3, 2);
    await page.mouse.down();
    await page.mouse.up();
    assert.match(await hashOf(page), /#zoom=0\.1$/);
    assert.match(await hover(page, 0.99, 2), /load/);
    await page.keyboard.press('Backspace');
    assert.match(await hashOf(page), /#zoom=0$/);
    await page.keyboard.press('Escape');
    assert.doesNotMatch(await hashOf(page), /zoom/);
    await close();
  });

  test('finds frames by a regular expression and shows their share', async () => {
    const { page, close } = await small();
    await page.keyboard.press('/');
    await page.keyboard.type('lib/parse\\.py:\\d');
    assert.equal(await searchResult(page), '2 frames · 7.00 MB · 70%');
    await page.keyboard.type('(');
    assert.equal(await searchResult(page), 'invalid regular expression');
    await page.keyboard.press('Escape');
    assert.equal(await searchResult(page), '');
    await close();
  });

  test('shows the allocating functions first when inverted', async () => {
    const { page, close } = await small();
    await page.getByRole('button', { name: 'Inverted' }).click();
    const text = await hover(page, 0.1, 1);
    assert.match(text, /parse/);
    assert.match(text, /7\.00 MB/);
    await close();
  });

  test('filters by thread and measure, and merges lines of a function', async () => {
    const { page, close } = await small();
    await page.locator('#filter').click();
    await page.getByRole('radio', { name: 'reader' }).click();
    await page.keyboard.press('Escape');
    await drawn(page);
    assert.match(await hover(page, 0.5, 0), /2\.00 MB/);
    await page.getByRole('radio', { name: 'Leaked' }).click();
    assert.match(await hover(page, 0.5, 0), /500 kB/);
    await page.locator('#filter').click();
    await page.getByRole('radio', { name: 'all threads' }).click();
    await page.keyboard.press('Escape');
    await page.getByRole('radio', { name: 'At the peak' }).click();
    await page.getByRole('button', { name: 'By function' }).click();
    await drawn(page);
    assert.match(await hover(page, 0.1, 2), /load[\s\S]*8\.00 MB/);
    await close();
  });

  test('hides the import system by default', async () => {
    const { page, close } = await small();
    await page.keyboard.press('/');
    await page.keyboard.type('importlib');
    assert.match(await searchResult(page), /^0 frames/);
    await page.keyboard.press('Escape');
    await page.keyboard.press('Escape');
    await page.getByRole('button', { name: 'Hide imports' }).click();
    await page.keyboard.press('/');
    await page.keyboard.type('importlib');
    assert.match(await searchResult(page), /^1 frame · 1\.00 MB/);
    await close();
  });

  test('shows the shares of my code and of libraries, and folds frames of libraries', async () => {
    const { page, close } = await small();
    const shares = async () => (await page.locator('.ownership').innerText()).replace(/\s+/g, ' ').trim();
    assert.equal(await shares(), 'allocated in my code 30% site-packages 70%');
    assert.match(await hover(page, 0.1, 3), /parse/);
    await page.getByRole('button', { name: 'My code' }).click();
    assert.match(await hashOf(page), /myCode=true/);
    assert.equal(await hover(page, 0.1, 3), '');
    assert.match(await hover(page, 0.1, 2), /load[\s\S]*own\s+6\.00 MB/);
    assert.equal(await shares(), 'allocated in my code 30% site-packages 70%');
    await page.keyboard.press('y');
    assert.match(await hover(page, 0.1, 3), /parse/);
    await close();
  });

  test('has the title notebook for a recording in a notebook, without the path of its kernel', async () => {
    const data = syntheticData({ frames: [[0, 'f', '/tmp/ipykernel_1/2.py', 1]], own: [[1, 0, 5, 0, 5]] });
    for (const launcher of ['ipykernel_launcher.py', 'ipykernel/__main__.py']) {
      data.head.processes[0].command_line = `/v/lib/python3.12/site-packages/${launcher} -f /tmp/kernel.json`;
      const { page, close } = await open(browser, pageOf(directory, 'flamegraph', data, 'notebook'));
      assert.equal(await page.locator('h1').innerText(), 'notebook');
      assert.equal(await page.title(), 'notebook · flame graph · Heaptide');
      await close();
    }
  });

  test('names code outside all known folders other, not site-packages', async () => {
    const frames = [
      [0, 'main', '/srv/job/job.py', 1],
      [1, 'plugin', '/opt/tools/plugin.py', 9],
    ];
    const data = syntheticData({ frames, own: [[1, 0, 3_000_000, 0, 3_000_000], [2, 0, 1_000_000, 0, 1_000_000]] });
    const { page, close } = await open(browser, pageOf(directory, 'flamegraph', data, 'other'));
    const shares = (await page.locator('.ownership').innerText()).replace(/\s+/g, ' ').trim();
    assert.equal(shares, 'allocated in my code 75% other 25%');
    await close();
  });

  test('folds native frames of the interpreter by default', async () => {
    const frames = [
      [0, 'main', '/srv/job/job.py', 1],
      [1, '_PyEval_EvalFrameDefault', '/cpython/ceval.c', 9],
      [2, 'array_new', '/numpy/array.c', 3],
    ];
    const data = syntheticData({ frames, own: [[3, 0, 1_000_000, 0, 1_000_000]] });
    const { page, close } = await open(browser, pageOf(directory, 'flamegraph', data, 'interpreter'));
    assert.match(await hover(page, 0.5, 2), /array_new/);
    await page.getByRole('button', { name: 'Hide interpreter' }).click();
    assert.match(await hover(page, 0.5, 2), /_PyEval_EvalFrameDefault/);
    assert.match(await hover(page, 0.5, 3), /array_new/);
    await close();
  });

  test('can be navigated by arrow keys, and announces the current frame', async () => {
    const { page, close } = await small();
    for (const key of ['ArrowDown', 'ArrowDown', 'ArrowDown']) await page.keyboard.press(key);
    assert.match(await spoken(page), /^load, \/srv\/job\/job\.py:20, 6\.00 MB/);
    await page.keyboard.press('ArrowRight');
    assert.match(await spoken(page), /^load, \/srv\/job\/job\.py:21, 2\.00 MB/);
    await page.keyboard.press('Enter');
    assert.match(await hashOf(page), /#zoom=0\./);
    await page.keyboard.press('?');
    await page.getByRole('dialog').waitFor();
    await page.keyboard.press('Escape');
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    await close();
  });

  test('is restored from its address', async () => {
    const hash = '#measure=total&unit=count&inverted=true&merge=function&orientation=flame&search=parse&theme=dark';
    const { page, close } = await small({ hash });
    assert.equal(await hashOf(page), hash);
    for (const name of ['Total', 'Allocations', '▲']) {
      assert.equal(await page.getByRole('radio', { name }).getAttribute('aria-checked'), 'true', name);
    }
    assert.equal(await page.getByRole('button', { name: 'Inverted' }).getAttribute('aria-pressed'), 'true');
    assert.match(await searchResult(page), /^1 frame · 2 · 50%/);
    await close();
  });

  test('opens with the view that the command requested', async () => {
    const { page, close } = await small({}, { first: { measure: 'leaked', inverted: true, split_threads: true } });
    assert.equal(await page.getByRole('radio', { name: 'Leaked' }).getAttribute('aria-checked'), 'true');
    assert.equal(await page.getByRole('button', { name: 'Split threads' }).getAttribute('aria-pressed'), 'true');
    assert.match(await hover(page, 0.1, 1), /MainThread[\s\S]*1\.00 MB/);
    await close();
  });

  test('uses the colours of the system or those the user chose', async () => {
    const background = async (page) => {
      await drawn(page);
      return page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    };
    const light = await small({ colorScheme: 'light' });
    const dark = await small({ colorScheme: 'dark' });
    const [white, black] = [await background(light.page), await background(dark.page)];
    assert.notEqual(white, black);
    await light.page.keyboard.press('d');
    assert.equal(await background(light.page), black);
    await dark.page.getByRole('button', { name: 'Use light colours' }).click();
    assert.equal(await background(dark.page), white);
    await light.close();
    await dark.close();
  });

  test('lists findings, and a click shows their frame', async () => {
    const finding = {
      kind: 'holds_most',
      what: 'parse:/srv/lib/parse.py:5 holds most at the peak',
      evidence: ['6.000MB in one block, 60 % of the heap at the peak'],
      advice: 'process smaller batches here, or free the data sooner',
      place: { function: 'parse', file: '/srv/lib/parse.py', line: 5 },
      caller: null,
      node: 3,
    };
    const churn = { ...finding, kind: 'churns', what: 'load:/srv/job/job.py:21 allocates again', node: 6 };
    const head = { findings: [finding, churn, { ...finding, what: 'the whole', place: null, node: null }] };
    const { page, errors, close } = await small({ hash: '#measure=total&thread=1' }, { head });
    const findings = page.locator('.findings ol > li');
    assert.match(await findings.first().innerText(), /parse:.*parse\.py:5 holds most at the peak\s+6\.000MB in one block[\s\S]*smaller batches/);
    await findings.first().getByRole('button').click();
    assert.match(await hashOf(page), /^#zoom=0\.1\.2$/);
    assert.match(await hover(page, 0.5, 3), /parse[\s\S]*6\.00 MB/);
    await findings.nth(1).getByRole('button').click();
    assert.match(await hashOf(page), /measure=temporary/);
    assert.ok(await findings.nth(2).getByRole('button').isDisabled());
    await page.keyboard.press('f');
    assert.equal(await findings.count(), 0);
    assert.match(await hashOf(page), /findings=false/);
    await page.getByRole('button', { name: 'Findings (3)' }).click();
    assert.equal(await findings.count(), 3);
    assert.deepEqual(errors, []);
    await close();
  });

  test('shows hostile names as text', async () => {
    const name = '</script><img src=x onerror="window.hacked=1">';
    const data = syntheticData({ frames: [[0, name, `/srv/${name}.py`, 1]], own: [[1, 0, 10, 10, 10]], threads: [name, name] });
    data.head.processes[0].command_line = name;
    data.head.warnings = [name];
    data.own.origin = [1];
    const { page, requests, errors, close } = await open(browser, pageOf(directory, 'flamegraph', data, 'hostile'));
    assert.equal(await page.locator('h1').innerText(), name);
    assert.match(await hover(page, 0.5, 1), /onerror=/);
    assert.equal(await page.locator('img').count(), 0);
    assert.equal(await page.evaluate(() => window.hacked), undefined);
    assert.deepEqual([requests, errors], [[], []]);
    await close();
  });

  test('hovers, zooms and scrolls 200,000 frames with less than 50 ms of work per drawing', async () => {
    const { page, close } = await open(browser, pageOf(directory, 'flamegraph', large(200_000), 'large'));
    // Measures processor time instead of elapsed time, because other programs may use the machine.
    const devtools = await page.context().newCDPSession(page);
    await devtools.send('Performance.enable', { timeDomain: 'threadTicks' });
    const worked = async () => {
      const { metrics } = await devtools.send('Performance.getMetrics');
      return metrics.find(({ name }) => name === 'TaskDuration').value * 1000;
    };
    await page.evaluate(() => (window.heaptideDrawings.length = 0));
    const before = await worked();
    const box = await page.locator('canvas[role=application]').boundingBox();
    for (const [x, y] of [[0.2, 3], [0.5, 5], [0.4, 8], [0.1, 2]]) {
      const nBefore = await page.evaluate(() => window.heaptideDrawings.length);
      await page.mouse.move(box.x + x * box.width, box.y + y * 22 + 11, { steps: 4 });
      await page.mouse.down();
      await page.mouse.up();
      await page.waitForFunction((n) => window.heaptideDrawings.length > n, nBefore);
    }
    await page.mouse.wheel(0, 2000);
    await drawn(page);
    const drawings = await page.evaluate(() => window.heaptideDrawings);
    const each = ((await worked()) - before) / drawings.length;
    const most = Math.max(...drawings.map((drawing) => drawing.nDrawn));
    console.log(`${drawings.length} drawings, ${each.toFixed(1)} ms of work for each, most frames in one ${most}`);
    assert.ok(each < 50, `a drawing took ${each} ms`);
    assert.ok(most > 1000, 'the graph has nothing to draw');
    await close();
  });

  test('finds frames among 200,000', async () => {
    const { page, close } = await open(browser, pageOf(directory, 'flamegraph', large(200_000), 'large'));
    await page.keyboard.press('/');
    await page.keyboard.type('function_17 ');
    await page.waitForFunction(() => document.querySelector('.search output').textContent.startsWith('67 frames'));
    await close();
  });
});
