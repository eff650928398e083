/** Runs Chromium for the tests and pictures: one browser, a new context per page, and no network access. */
import { existsSync, mkdtempSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

// The packages are those of web/, pinned by its lock file.
const require = createRequire(new URL('../../web/package.json', import.meta.url));
const { chromium } = require('playwright-core');

/** Milliseconds to wait for a condition: far more than the slowest machine needs. */
const TIMEOUT_MS = 300_000;
const EXECUTABLES = [process.env.CHROMIUM, '/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'];

export async function launch() {
  const executablePath = EXECUTABLES.find((path) => path && existsSync(path));
  if (!executablePath) {
    throw new Error('no Chromium found: install the package chromium, or name the program in CHROMIUM');
  }
  return chromium.launch({
    executablePath,
    timeout: TIMEOUT_MS,
    args: [
      '--no-sandbox',
      '--disable-gpu',
      '--disable-quic',
      '--no-first-run',
      '--disable-background-networking',
      '--disable-component-update',
      '--disable-sync',
    ],
  });
}

/** Opens a file and waits until it is drawn. Collects its network requests and its errors. */
export async function open(browser, file, options = {}) {
  const { hash = '', ...context } = options;
  const opened = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...context });
  opened.setDefaultTimeout(TIMEOUT_MS);
  const page = await opened.newPage();
  const requests = [];
  const errors = [];
  const address = pathToFileURL(file).href;
  page.on('request', (request) => {
    const url = request.url();
    if (url.split('#')[0] !== address && !url.startsWith('data:') && !url.startsWith('blob:')) requests.push(url);
  });
  page.on('pageerror', (error) => errors.push(String(error)));
  page.on('console', (message) => {
    if (message.type() === 'error') errors.push(message.text());
  });
  await page.addInitScript(() => {
    window.heaptideDrawings = [];
  });
  await page.goto(address + hash);
  await page.waitForSelector('html[data-ready=true]');
  await drawn(page);
  return { page, requests, errors, close: () => opened.close() };
}

/** Waits until all earlier input has taken effect on the screen. */
export function drawn(page) {
  return page.evaluate(
    () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done)))),
  );
}

/** Returns the tooltip at a share of the width, in a row counted from the top. */
export async function hover(page, x, row) {
  // Earlier input may still move the graph or remove the tooltip.
  await drawn(page);
  const box = await page.locator('canvas[role=application]').boundingBox();
  const [left, top] = [box.x + x * box.width, box.y + row * 22 + 11];
  // Move away first, because moving to the current position has no effect.
  await page.mouse.move(left, top + 1);
  await page.mouse.move(left, top);
  await drawn(page);
  const tooltip = page.locator('.tooltip');
  return (await tooltip.count()) ? tooltip.innerText() : '';
}

/** Returns the fragment of the address, which starts with `#`. */
export async function hashOf(page) {
  await drawn(page);
  return page.evaluate(() => location.hash);
}

/** Creates a temporary folder. */
export function folder() {
  return mkdtempSync(join(tmpdir(), 'heaptide-pages-'));
}

/** Drags over the first chart from one share of its width to another; equal shares make a click. */
export async function drag(page, from, to) {
  const over = page.locator('.u-over').first();
  await over.scrollIntoViewIfNeeded();
  const box = await over.boundingBox();
  const y = box.y + box.height / 2;
  const x = (share) => box.x + Math.min(share * box.width, box.width - 1);
  await page.mouse.move(x(from), y);
  await page.mouse.down();
  if (to !== from) await page.mouse.move(x(to), y, { steps: 5 });
  await page.mouse.up();
  await drawn(page);
}
