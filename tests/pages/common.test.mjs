/** Tests that apply to all pages: accessibility, one tab stop per group of buttons, printing, narrow windows. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { describe, test } from 'node:test';
import { drawn, open } from './browser.mjs';
import { EXAMPLES } from './examples.mjs';
import { pageOf, syntheticData } from './synthetic-data.mjs';
import { browser, directory } from './shared-browser.mjs';

const require = createRequire(new URL('../../web/package.json', import.meta.url));
const AXE = readFileSync(require.resolve('axe-core'), 'utf8');
/** A4 at 96 pixels per inch, without margins. */
const A4_WIDTH = 794;

/** Returns violations as texts: the rule and the elements. */
async function violations(page) {
  await page.evaluate(AXE);
  return page.evaluate(async () => {
    const { violations } = await axe.run(document, { resultTypes: ['violations'] });
    return violations.map(({ id, nodes }) => `${id}: ${nodes.map((node) => `${node.target} ${node.any[0]?.message ?? ''}`).join(', ')}`);
  });
}

for (const [template, data, hashes] of EXAMPLES) {
  const show = (options) => open(browser, pageOf(directory, template, data(), `${template}-common`), { reducedMotion: 'reduce', ...options });

  describe(`the ${template} page`, () => {
    test('has no violation of accessibility rules, light and dark, wide and narrow', async () => {
      for (const hash of hashes) {
        for (const colorScheme of ['light', 'dark']) {
          const { page, close } = await show({ hash, colorScheme });
          for (const width of [1280, 400]) {
            await page.setViewportSize({ width, height: 800 });
            await drawn(page);
            assert.deepEqual(await violations(page), [], `${hash} ${colorScheme} ${width}`);
          }
          await close();
        }
      }
    });

    test('makes no network requests and raises no errors', async () => {
      const { page, requests, errors, close } = await show({});
      for (const key of ['d', '?', 'Escape']) await page.keyboard.press(key);
      await drawn(page);
      assert.deepEqual([requests, errors], [[], []]);
      await close();
    });

    test('has one tab stop per group of buttons', async () => {
      const { page, close } = await show({});
      const stops = await page.evaluate(() =>
        [...document.querySelectorAll('[role=radiogroup], [role=toolbar]')]
          .map((group) => [...group.querySelectorAll('button:not(:disabled)')].map((button) => button.tabIndex))
          .filter((buttons) => buttons.length > 0)
          .map((buttons) => buttons.filter((index) => index === 0).length),
      );
      for (const stop of stops) assert.equal(stop, 1, JSON.stringify(stops));
      await close();
    });

    test('fits a sheet of paper and a narrow window', async () => {
      const { page, close } = await show({ colorScheme: 'dark' });
      const widest = () =>
        page.evaluate(() => {
          const edges = [...document.querySelectorAll('canvas, table, .findings, .curves, header')].map((part) => part.getBoundingClientRect().right);
          return [Math.max(...edges), document.documentElement.scrollWidth];
        });
      await page.evaluate(() => window.dispatchEvent(new Event('beforeprint')));
      await page.emulateMedia({ media: 'print' });
      await page.setViewportSize({ width: A4_WIDTH, height: 1123 });
      await drawn(page);
      for (const edge of await widest()) assert.ok(edge <= A4_WIDTH, `${edge} of ${A4_WIDTH} on paper`);
      assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), 'light');
      const uncoloured = await page.evaluate(() => {
        const isColoured = (style) => style.backgroundColor !== 'rgba(0, 0, 0, 0)' || style.backgroundImage !== 'none';
        const styles = [...document.querySelectorAll('main *')].map((element) => getComputedStyle(element));
        return styles.filter((style) => isColoured(style) && style.printColorAdjust !== 'exact').length;
      });
      assert.equal(uncoloured, 0);
      await page.evaluate(() => window.dispatchEvent(new Event('afterprint')));
      await page.emulateMedia({ media: 'screen' });
      await page.setViewportSize({ width: 400, height: 800 });
      await drawn(page);
      const [, scroll] = await widest();
      assert.ok(scroll <= 400, `${scroll} of 400`);
      await close();
    });
  });
}

describe('a printed flame graph', () => {
  test('has all its rows, however many', async () => {
    const frames = Array.from({ length: 80 }, (_, depth) => [depth, `f${depth}`, '/srv/job/job.py', depth + 1]);
    const data = syntheticData({ frames, own: [[80, 0, 1_000_000, 0, 1_000_000]] });
    const { page, close } = await open(browser, pageOf(directory, 'flamegraph', data, 'deep'));
    await page.evaluate(() => window.dispatchEvent(new Event('beforeprint')));
    const height = await page.evaluate(() => document.querySelector('canvas[role=application]').height / devicePixelRatio);
    assert.ok(height >= 81 * 22, String(height));
    await close();
  });
});
