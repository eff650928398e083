/** Tests the page of a served job's routes: call the job, stop the profiler, open the flame graph. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { after, before, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { folder, launch } from './browser.mjs';

const HEAPTIDE = process.env.COMMAND_UNDER_TEST ?? fileURLToPath(new URL('../../build/venv/bin/heaptide', import.meta.url));
const EXAMPLE = fileURLToPath(new URL('../../examples/memory-leak/job.py', import.meta.url));
const TIMEOUT_MS = 300_000;

let browser;
let directory;
// Jobs to kill at the end, including those of failed tests.
const running = new Set();
before(async () => {
  directory = folder();
  browser = await launch();
});
after(async () => {
  for (const job of running) job.kill('SIGKILL');
  await browser?.close();
  rmSync(directory, { recursive: true });
});

/** Serves the example over HTTP, and returns its address and a function that ends it. */
async function served(more = {}) {
  const env = { ...process.env, MEMRAY_PROFILER: 'true', HEAPTIDE_SESSIONS: join(directory, 'sessions'), HEAPTIDE_RUNTIME_DIR: join(directory, 'run'), ...more };
  const job = spawn(HEAPTIDE, ['serve', EXAMPLE, '--port', '0'], { env, stdio: ['ignore', 'pipe', 'inherit'] });
  running.add(job);
  job.on('exit', () => running.delete(job));
  const [line] = await once(createInterface(job.stdout), 'line');
  return {
    url: line.split(' at ')[1],
    end: async () => {
      job.kill();
      const [code] = await once(job, 'exit');
      assert.equal(code, 0);
    },
  };
}

/** Opens the page, and collects its requests to other hosts and its errors. */
async function open(url) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 } });
  context.setDefaultTimeout(TIMEOUT_MS);
  const elsewhere = [];
  const errors = [];
  context.on('request', (request) => {
    if (!/^(data|blob):/.test(request.url()) && new URL(request.url()).host !== new URL(url).host) elsewhere.push(request.url());
  });
  const page = await context.newPage();
  page.on('pageerror', (error) => errors.push(String(error)));
  page.on('console', (message) => {
    if (message.type() === 'error') errors.push(message.text());
  });
  await page.goto(url);
  return { context, page, elsewhere, errors };
}

/** Opens a route's form, submits it, and waits for the response below it. */
async function use(page, method, path) {
  const route = page.locator('details', { has: page.locator(`summary:has-text("${method.toUpperCase()}") code:text-is("${path}")`) });
  if (!(await route.getAttribute('open').then((value) => value !== null))) await route.locator('summary').click();
  await route.locator('pre').evaluate((element) => (element.textContent = ''));
  await route.getByRole('button', { name: 'Try it' }).click();
  const answer = route.locator('pre', { hasText: /^\d{3} / });
  await answer.waitFor();
  return { route, text: await answer.innerText() };
}

describe('the page of routes', () => {
  test('calls the job, stops the profiler and opens the flame graph without requests to other hosts', async () => {
    const job = await served();
    const { context, page, elsewhere, errors } = await open(`${job.url}/`);
    await page.waitForFunction(() => document.title === 'memory-leak 0.0.1');
    for (const call of [1, 2, 3]) {
      assert.equal((await use(page, 'post', '/api/v1/perform')).text, `200 OK\n\n${call}`);
    }
    assert.match((await use(page, 'post', '/api/v1/profiler/memray/stop')).text, /"result": "stopped"/);
    assert.match((await use(page, 'get', '/api/v1/profiler/memray/stats')).text, /by size\):\s+- perform:.*job\.py:7 -> 24\.000MB/);
    const { route } = await use(page, 'get', '/api/v1/profiler/memray/flamegraph');
    for (const opener of [route.getByRole('button', { name: 'Open' }), route.getByRole('link', { name: 'Open memray-flamegraph.html' })]) {
      const [graph] = await Promise.all([context.waitForEvent('page'), opener.click()]);
      await graph.waitForSelector('html[data-ready=true]');
      assert.match(await graph.locator('body').innerText(), /perform \(.*job\.py:7\)/);
    }
    const heap = await use(page, 'post', '/api/v1/profiler/heap');
    assert.match(heap.text, /bytes of application\/octet-stream/);
    const [saved] = await Promise.all([page.waitForEvent('download'), heap.route.getByRole('link', { name: /^Save .*\.heap$/ }).click()]);
    assert.match(saved.suggestedFilename(), /\.heap$/);
    assert.deepEqual([elsewhere, errors], [[], []]);
    await context.close();
    await job.end();
  });

  test('requires the token and opens reports from the fetched response', async () => {
    writeFileSync(join(directory, 'token'), 'secret\n');
    const job = await served({ HEAPTIDE_TOKEN_FILE: join(directory, 'token') });
    const { context, page } = await open(`${job.url}/docs`);
    assert.match((await use(page, 'get', '/api/v1/profiler/status')).text, /^401 /);
    await page.locator('#token').fill('secret');
    assert.match((await use(page, 'get', '/api/v1/profiler/status')).text, /^200 /);
    const { route } = await use(page, 'get', '/api/v1/profiler/table');
    assert.equal(await route.getByRole('button', { name: 'Open' }).count(), 0);
    const [table] = await Promise.all([context.waitForEvent('page'), route.getByRole('link', { name: 'Open heaptide-table.html' }).click()]);
    await table.waitForSelector('html[data-ready=true]');
    await context.close();
    await job.end();
  });
});
