/**
 * Opens pages of Flyte in Chromium: the deck of a task, and the report of a Flyte 2 task.
 *
 * usage: PAGES=a.html:b.html SHOTS=folder node decks.mjs
 */
import assert from 'node:assert/strict';
import { basename, join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { launch } from '../../pages/browser.mjs';

const { PAGES, SHOTS } = process.env;
const browser = await launch();

for (const [number, file] of PAGES.split(':').entries()) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 } });
  context.setDefaultTimeout(300_000);
  const page = await context.newPage();
  const requests = [];
  const errors = [];
  page.on('pageerror', (error) => errors.push(String(error)));
  await context.route(/^https?:/, (route) => {
    requests.push(route.request());
    return route.abort();
  });
  await page.goto(pathToFileURL(file).href);
  const frame = page.frameLocator('iframe');
  await frame.locator('html[data-ready=true]').waitFor();

  // The page is drawn: the peak, the findings and the function that allocated.
  const text = await frame.locator('body').innerText();
  assert.match(text, /peak\s+8\.00 MB/);
  assert.match(text, /grow \(.*\) holds most at the peak/);

  // Flyte's own template requests a font; the frame makes no request.
  const fromTheFrame = requests.filter((request) => request.frame() !== page.mainFrame());
  assert.deepEqual(fromTheFrame.map((request) => request.url()), []);
  assert.deepEqual(errors, []);

  // Neither document can access the other, and Flyte's keeps its own style.
  assert.equal(await page.evaluate(() => document.querySelector('iframe').contentDocument), null);
  const parent = await frame.locator('html').evaluate(() => {
    try {
      return window.parent.document.title;
    } catch (error) {
      return error.name;
    }
  });
  assert.equal(parent, 'SecurityError');
  const colours = await Promise.all(
    [page.locator('body'), frame.locator('body')].map((body) =>
      body.evaluate((each) => getComputedStyle(each).backgroundColor),
    ),
  );
  assert.notEqual(colours[0], colours[1]);

  // The frame has the full width of Flyte's page, and its content fits.
  const box = await page.locator('iframe').boundingBox();
  assert.ok(box.width >= 1100 && box.height >= 600, JSON.stringify(box));
  const overhang = await frame.locator('html').evaluate((html) => html.scrollWidth - html.clientWidth);
  assert.equal(overhang, 0);
  await page.screenshot({ path: join(SHOTS, `${number}-${basename(file, '.html')}.png`) });
  await context.close();
}

await browser.close();
