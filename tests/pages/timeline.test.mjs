/** Tests time intervals: dragged on the chart of a flame graph or a table, and as two marks on a timeline. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { drag, drawn, hashOf, hover, open } from './browser.mjs';
import { syntheticData, pageOf } from './synthetic-data.mjs';
import { browser, directory } from './shared-browser.mjs';

// keep allocates 1 MB more in each bin; scratch has 4 MB in the second bin only.
const SMALL = {
  frames: [
    [0, '<module>', '/srv/job/job.py', 10],
    [1, 'keep', '/srv/job/job.py', 20],
    [1, 'scratch', '/srv/job/job.py', 30],
  ],
  own: [
    [2, 0, 2_000_000, 4_000_000, 4_000_000],
    [3, 1, 4_000_000, 0, 4_000_000],
  ],
  threads: ['MainThread', 'worker'],
  lives: [
    [0, 0, 4, 1_000_000],
    [0, 1, 4, 1_000_000],
    [0, 2, 4, 1_000_000],
    [0, 3, 4, 1_000_000],
    [1, 1, 2, 4_000_000],
  ],
};

/** Returns the data of two processes with one thread each. */
function session() {
  const data = syntheticData(SMALL);
  const [known] = data.head.processes;
  data.head.processes = [known, { ...known, name: '4712', pid: 4712, peak_bytes: 4_000_000, limit_bytes: null }];
  data.head.threads[1].process = 1;
  data.timeline.processes = [
    { heap: [1e6, 2e6, 4e6], resident: [null, 3e6, 5e6] },
    { heap: [0, 4e6, 0], resident: [null, 5e6, 5e6] },
  ];
  return data;
}

const openPage = (name, options = {}) => open(browser, pageOf(directory, name, syntheticData(SMALL), `${name}-lives`), { reducedMotion: 'reduce', ...options });
const timeline = (options = {}) => open(browser, pageOf(directory, 'timeline', session()), { reducedMotion: 'reduce', ...options });

describe('an interval', () => {
  test('dragged on the flame graph shows the blocks allocated in it and live at its end', async () => {
    const { page, requests, errors, close } = await openPage('flamegraph');
    await drag(page, 0.26, 0.74);
    assert.match(await hashOf(page), /#from=1&to=3/);
    assert.match(await hover(page, 0.5, 0), /2\.00 MB \(2,000,000 bytes\)/);
    assert.match(await hover(page, 0.9, 2), /keep/);
    await page.getByRole('radio', { name: 'Allocated', exact: true }).click();
    assert.match(await hover(page, 0.5, 0), /6\.00 MB/);
    await page.keyboard.press('m');
    assert.match(await hover(page, 0.5, 0), /change\s+\+2\.00 MB[\s\S]*before\s+1\.00 MB[\s\S]*after\s+3\.00 MB/);
    await page.locator('#interval').click();
    assert.equal(await page.locator('#interval').count(), 0);
    assert.match(await hover(page, 0.5, 0), /6\.00 MB/);
    assert.deepEqual([requests, errors], [[], []]);
    await close();
  });

  test('is selected with the keyboard, and removed by Escape or a click', async () => {
    const { page, close } = await openPage('flamegraph');
    await page.keyboard.press('r');
    await page.keyboard.press('ArrowRight');
    assert.match(await hashOf(page), /to=2/);
    await page.keyboard.press('Shift+ArrowRight');
    await page.keyboard.press('ArrowRight');
    assert.match(await hashOf(page), /from=1&to=3/);
    await page.keyboard.press('Escape');
    assert.doesNotMatch(await hashOf(page), /from|to=/);
    await drag(page, 0.1, 0.6);
    assert.match(await hashOf(page), /from=/);
    await drag(page, 0.5, 0.5);
    assert.doesNotMatch(await hashOf(page), /from|to=/);
    await close();
  });

  test('restricts the rows of the table', async () => {
    const { page, close } = await openPage('table', { hash: '#from=1&to=2&grouping=function' });
    const sizes = () => page.locator('.rows tbody td.own .size').allInnerTexts();
    assert.deepEqual(await sizes(), ['4.00 MB', '1.00 MB', '0 B']);
    await drag(page, 0.5, 1);
    await drawn(page);
    assert.deepEqual(await sizes(), ['2.00 MB', '0 B']);
    await close();
  });

  test('is ignored if the address is invalid', async () => {
    for (const hash of ['#from=3&to=1', '#from=1&to=99', '#from=1', '#from=x&to=2']) {
      const { page, errors, close } = await openPage('flamegraph', { hash });
      assert.equal(await page.locator('#interval').count(), 0, hash);
      assert.deepEqual(errors, []);
      await close();
    }
  });

  test('cannot be dragged without data of lifetimes', async () => {
    const { page, errors, close } = await open(browser, pageOf(directory, 'flamegraph', syntheticData({ ...SMALL, lives: undefined }), 'no-lives'));
    await drag(page, 0.26, 0.74);
    assert.doesNotMatch(await hashOf(page), /from|to=/);
    assert.deepEqual(errors, []);
    await close();
  });
});

describe('the timeline', () => {
  test('makes no network requests and raises no errors while it is used', async () => {
    const { page, requests, errors, close } = await timeline();
    for (const key of ['k', 'u', 'k', 'u', 'v', 'w', 'i', 'l', 'v', 'g', '2', 'r', 'ArrowLeft', 'x', 'd', '?', 'Escape']) await page.keyboard.press(key);
    await drawn(page);
    assert.deepEqual([requests, errors], [[], []]);
    await close();
  });

  test('shows all processes at one moment and names it', async () => {
    const data = session();
    data.head.peak_heading = '2 processes at their common peak, 1.0 s after the start';
    data.head.processes[0].at_peak_bytes = 1_500_000;
    data.head.processes[1].at_peak_bytes = 4_500_000;
    const { page, close } = await open(browser, pageOf(directory, 'timeline', data, 'moment'));
    assert.match(await page.locator('.about').innerText(), /^2 processes at their common peak, 1\.0 s after the start/);
    const heads = await page.locator('.processes th').allInnerTexts();
    const column = heads.indexOf('At the common peak');
    assert.ok(column > 0 && heads.includes('Own heap peak'), heads.join());
    const cells = page.locator(`.processes tbody td:nth-child(${column + 1})`);
    assert.deepEqual(await cells.allInnerTexts(), ['1.50 MB', '4.50 MB']);
    await close();
  });

  test('with each process at its own peak has no column for the common peak', async () => {
    const data = session();
    data.head.peak_heading = '2 processes, each at its own peak';
    data.head.peak_ns = null;
    const { page, close } = await open(browser, pageOf(directory, 'timeline', data, 'own-peaks'));
    assert.match(await page.locator('.about').innerText(), /^2 processes, each at its own peak/);
    assert.ok(!(await page.locator('.processes th').allInnerTexts()).includes('At the common peak'));
    await close();
  });

  test('shows which process and which stack grew between two marks', async () => {
    const { page, close } = await timeline();
    const growth = page.locator('[data-figure="growth"]');
    const sizes = () => page.locator('.rows tbody td.change .size').allInnerTexts();
    // By default from the start to the peak.
    assert.equal(await growth.innerText(), '+6.00 MB');
    await drag(page, 0.26, 0.52);
    await drawn(page);
    assert.equal(await growth.innerText(), '+5.00 MB');
    assert.deepEqual(await sizes(), ['+4.00 MB', '+1.00 MB']);
    assert.equal(await page.locator('[data-growth="4711"]').innerText(), '+1.00 MB');
    assert.equal(await page.locator('[data-growth="4712"]').innerText(), '+4.00 MB');
    await drag(page, 0.5, 1);
    await drawn(page);
    assert.deepEqual(await sizes(), ['+2.00 MB', '−4.00 MB']);
    await page.getByRole('button', { name: '4712' }).click();
    await drawn(page);
    assert.deepEqual(await sizes(), ['−4.00 MB']);
    assert.match(await hashOf(page), /#from=2&to=4&process=1/);
    await close();
  });

  test('shows processes stacked or in separate charts', async () => {
    const { page, close } = await timeline();
    assert.equal(await page.locator('.uplot').count(), 1);
    await page.getByRole('radio', { name: 'Side by side' }).click();
    await page.locator('figure').nth(1).waitFor();
    assert.equal(await page.locator('.uplot').count(), 2);
    assert.match(await page.locator('figure').first().innerText(), /4711/);
    assert.match(await hashOf(page), /layout=side/);
    await close();
  });

  test('also shows growth as a graph', async () => {
    const { page, close } = await timeline({ hash: '#from=1&to=2&view=graph' });
    assert.match(await hover(page, 0.3, 2), /scratch[\s\S]*change\s+\+4\.00 MB \(new\)/);
    await close();
  });

  test('shows hostile names as text', async () => {
    const name = '</script><img src=x onerror="window.hacked=1">';
    const data = session();
    data.head.processes[1].command_line = name;
    data.head.processes[0].command_line = name;
    const { page, requests, errors, close } = await open(browser, pageOf(directory, 'timeline', data, 'hostile-timeline'), { hash: '#layout=side' });
    assert.equal(await page.locator('h1').innerText(), name);
    assert.match(await page.locator('figcaption').first().innerText(), /onerror/);
    assert.equal(await page.locator('img').count(), 0);
    assert.equal(await page.evaluate(() => window.hacked), undefined);
    assert.deepEqual([requests, errors], [[], []]);
    await close();
  });
});
