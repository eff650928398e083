/**
 * Opens the pages of a Racetrack job in Chromium, below the prefix of the job, without a network.
 *
 * usage: ADDRESS=http://127.0.0.1:PORT/pub/job/NAME/VERSION SHOTS=folder node pages.mjs
 */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { launch } from '../../pages/browser.mjs';

const { ADDRESS, SHOTS } = process.env;
const PROFILER = '/api/v1/profiler';
const browser = await launch();

/** Opens a page, and fails if it asks another server for anything or has an error. */
async function visit(path, name, examine) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 } });
  context.setDefaultTimeout(300_000);
  const page = await context.newPage();
  const outside = [];
  const errors = [];
  page.on('pageerror', (error) => errors.push(String(error)));
  await context.route(
    (url) => url.protocol.startsWith('http') && url.origin !== new URL(ADDRESS).origin,
    (route) => {
      outside.push(route.request().url());
      return route.abort();
    },
  );
  const answer = await page.goto(ADDRESS + path);
  assert.equal(answer.status(), 200, path);
  await examine(page);
  await page.screenshot({ path: join(SHOTS, `${name}.png`) });
  assert.deepEqual([outside, errors], [[], []], path);
  await context.close();
}

for (const [name, query, selected] of [
  ['flamegraph', '', 'At the peak'],
  ['flamegraph-leaks', '?leaks=1', 'Leaked'],
]) {
  await visit(`${PROFILER}/memray/flamegraph${query}`, name, async (page) => {
    await page.locator('html[data-ready=true]').waitFor();
    const text = await page.locator('body').innerText();
    assert.match(text, /perform \([^)]*memory-leak\/job\.py:\s*7\) holds most at the peak/);
    assert.match(text, /24\.0 MB/);
    assert.equal(await page.getByRole('radio', { name: selected, checked: true }).count(), 1, selected);
  });
}

// The list of routes sends its requests below the prefix.
await visit(`${PROFILER}/docs`, 'routes', async (page) => {
  const route = page.locator('details', { hasText: `${PROFILER}/memray/stats` });
  await route.locator('summary').click();
  await route.getByRole('button', { name: 'Try it' }).click();
  const output = route.locator('pre', { hasText: /\n/ });
  await output.waitFor();
  // Three blocks of 8,000,000 bytes, and the list of all blocks so far.
  assert.match(await output.innerText(), /perform:.*job\.py:7 -> 24\.00\dMB/);
});

await browser.close();
