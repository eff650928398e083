/**
 * Opens the pages of a Racetrack job in Chromium, below the prefix of the job, without a network.
 *
 * The job runner's own Swagger page loads swagger-ui from a public server; this script serves SWAGGER, a folder, instead.
 *
 * usage: ADDRESS=http://127.0.0.1:PORT/pub/job/NAME/VERSION SWAGGER=folder SHOTS=folder node pages.mjs
 */
import assert from 'node:assert/strict';
import { basename, join } from 'node:path';
import { launch } from '../../pages/browser.mjs';

const { ADDRESS, SHOTS, SWAGGER } = process.env;
const PROFILER = '/api/v1/profiler';
const browser = await launch();

/** Opens a page, and fails if it has an error or requests other files than the expected ones from another server. */
async function visit(path, name, examine, expected = []) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 } });
  context.setDefaultTimeout(300_000);
  const page = await context.newPage();
  const outside = [];
  const errors = [];
  page.on('pageerror', (error) => errors.push(String(error)));
  await context.route(
    (url) => url.protocol.startsWith('http') && url.origin !== new URL(ADDRESS).origin,
    (route) => {
      const url = route.request().url();
      const file = basename(url);
      if (expected.includes(file)) return route.fulfill({ path: join(SWAGGER, file) });
      if (!expected.length || !url.endsWith('favicon.png')) outside.push(url);
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

// The job's own Swagger page lists the routes next to the job's, and calls them below the prefix.
await visit(
  '/docs',
  'swagger',
  async (page) => {
    const path = (route) => page.locator(`[data-path="${route}"]`);
    await path('/api/v1/perform').waitFor();
    for (const route of ['start', 'stop', 'report', 'flamegraph', 'stats']) {
      assert.equal(await path(`${PROFILER}/memray/${route}`).count(), 1, route);
    }
    for (const route of ['status', 'sessions', 'table', 'summary', 'tree', 'timeline', 'diff', 'snapshot', 'heap']) {
      assert.equal(await path(`${PROFILER}/${route}`).count(), 1, route);
    }
    const stats = page.locator('.opblock', { has: path(`${PROFILER}/memray/stats`) });
    await stats.locator('.opblock-summary-control').click();
    await stats.getByRole('button', { name: 'Try it out' }).click();
    await stats.getByRole('button', { name: 'Execute' }).click();
    const answer = stats.locator('.live-responses-table');
    await answer.waitFor();
    assert.match(await answer.innerText(), /200[^]*perform:.*job\.py:7 -> 24\.00\dMB/);
  },
  ['swagger-ui-bundle.js', 'swagger-ui.css'],
);

await browser.close();
