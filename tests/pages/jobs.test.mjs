/** Tests the jobs page in a browser. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { drawn, hashOf, open } from './browser.mjs';
import { JOBS } from './jobs-data.mjs';
import { pageOf } from './synthetic-data.mjs';
import { browser, directory } from './shared-browser.mjs';

const show = (options = {}) => open(browser, pageOf(directory, 'jobs', JOBS), options);
const text = async (page, selector) => {
  await drawn(page);
  return page.locator(selector).innerText();
};

describe('the jobs page', () => {
  test('makes no network requests and sorts jobs by their peaks', async () => {
    // In the data, the job with the highest peak is last, and the one without a peak is first.
    const data = { ...JOBS, rows: [...JOBS.rows].reverse(), spans: { ...JOBS.spans, row: JOBS.spans.row.map((at) => JOBS.rows.length - 1 - at) } };
    const { page, requests, errors, close } = await open(browser, pageOf(directory, 'jobs', data, 'unsorted'));
    const names = () => page.locator('tbody td.name').allInnerTexts();
    assert.deepEqual(await names(), ['render <pdf>', 'send mail', 'sweep']);
    assert.equal(await text(page, 'dd[data-figure="leaking jobs"]'), '1');
    await page.getByRole('button', { name: 'Killed', exact: true }).click();
    await drawn(page);
    assert.equal((await names())[0], 'send mail');
    assert.deepEqual([requests, errors], [[], []]);
    await close();
  });

  test('shows distribution, verdict and flame graph of the selected job', async () => {
    const { page, errors, close } = await show();
    await page.getByRole('button', { name: 'render <pdf>', exact: true }).click();
    const detail = await text(page, '.detail');
    assert.match(detail, /Each run leaves \+300 kB \(>99\.9% confidence/);
    assert.match(detail, /render at tasks\/pdf\.py:41 \(1\.20 MB left by the 3 measured runs\)/);
    assert.match(detail, /2\.00 MB \(95%\), 9\.00 MB ± 400 kB \(highest\)/);
    assert.match(await page.locator('.note').first().innerText(), /Estimates from sampled recordings/);
    assert.equal(await page.locator('.detail .bars').first().locator('i').count(), 3);
    const link = page.getByRole('link', { name: 'Flame graph of /srv/work.tide' });
    assert.equal(await link.getAttribute('href'), 'heaptide-flamegraph-work.html#jobName=render+%3Cpdf%3E');
    assert.match(await hashOf(page), /jobName=render/);
    await page.getByRole('button', { name: 'send mail', exact: true }).click();
    assert.match(await text(page, '.detail'), /heaptide flamegraph --job 'send mail' \/srv\/other\.tide/);
    await page.getByRole('button', { name: 'sweep', exact: true }).click();
    assert.match(await text(page, '.detail'), /most frequent error: ValueError[\s\S]*No capture has this job/);
    assert.deepEqual(errors, []);
    await close();
  });

  test('shows the runs of each process over time, and one of them on request', async () => {
    const { page, errors, close } = await show();
    assert.equal(await page.locator('.worker').count(), 2);
    const widths = await page.locator('.worker').first().locator('.span').evaluateAll((spans) => spans.map((span) => span.style.width));
    assert.deepEqual(widths, ['40%', '40%']);
    assert.match(await text(page, '.worker:nth-of-type(2) .label'), /3 short runs not shown/);
    await page.locator('.span').first().click();
    assert.match(await text(page, '.run'), /key order 7 · ok · .* · process 1@web-1 on web-1 · peak 9\.00 MB ± 400 kB/);
    assert.match(await page.locator('.span.killed').getAttribute('title'), /^send mail: killed, 3\.00 s$/);
    assert.deepEqual(errors, []);
    await close();
  });

  test('can be used by keyboard', async () => {
    const { page, close } = await show();
    await page.keyboard.press('j');
    assert.match(await text(page, '.detail h2'), /render <pdf>/);
    await page.keyboard.press('j');
    assert.match(await text(page, '.detail h2'), /send mail/);
    await page.keyboard.press('Escape');
    await drawn(page);
    assert.equal(await page.locator('.detail').count(), 0);
    await page.keyboard.press('/');
    await page.keyboard.type('swe');
    await page.keyboard.press('Enter');
    assert.match(await text(page, '.detail h2'), /sweep/);
    await page.keyboard.press('?');
    assert.match(await text(page, 'dialog'), /select the next or the previous job/);
    await close();
  });

  for (const width of [1280, 1100, 1000, 900, 800, 700, 400]) {
    test(`shows names, peaks and verdicts side by side at ${width} pixels`, async () => {
      const { page, close } = await show({ viewport: { width, height: 800 } });
      const over = await page.locator('.rows').evaluate((box) => box.scrollWidth - box.clientWidth);
      assert.ok(over <= 0, `${over} pixels too wide`);
      for (const column of ['name', 'peak', 'left', 'verdict']) assert.ok(await page.locator(`tbody td.${column}`).first().isVisible(), column);
      const cut = await page.evaluate(() =>
        [...document.querySelectorAll('.rows :is(th button, td:not(.name))')].filter((cell) => cell.scrollWidth > cell.clientWidth).map((cell) => cell.textContent),
      );
      assert.deepEqual(cut, []);
      await close();
    });
  }

  test('gives all cells of the row under the pointer one colour', async () => {
    const { page, close } = await show();
    const coloursOf = (name) =>
      page
        .locator('tbody tr')
        .filter({ hasText: name })
        .locator('td')
        .evaluateAll((cells) => [...new Set(cells.map((cell) => getComputedStyle(cell).backgroundColor))]);
    await page.locator('tbody tr').filter({ hasText: 'send mail' }).hover();
    await drawn(page);
    const colours = await coloursOf('send mail');
    assert.equal(colours.length, 1, colours.join(' | '));
    const others = await coloursOf('sweep');
    assert.ok(!others.includes(colours[0]), others.join(' | '));
    await close();
  });

  test('shows the numbers of hidden columns below the selected job', async () => {
    const { page, close } = await show({ hash: '#jobName=send+mail', viewport: { width: 400, height: 800 } });
    assert.match(await text(page, '.detail'), /peak 1\.00 MB \(median\), 2\.00 MB \(95%\), 3\.00 MB \(highest\) · duration 250 ms \(median\)/);
    await close();
  });

  test('opens a shared address and fits a narrow window', async () => {
    const { page, errors, close } = await show({ hash: '#jobName=send+mail&theme=dark', viewport: { width: 400, height: 800 } });
    assert.match(await text(page, '.detail h2'), /send mail/);
    const overhang = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    assert.ok(overhang <= 0, `${overhang} pixels too wide`);
    assert.ok((await page.locator('tbody td.name').first().boundingBox()).width >= 100);
    assert.deepEqual(errors, []);
    await close();
  });
});
