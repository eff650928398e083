/** Tests that pages are readable in windows of every width: few rows of controls, visible names, no text cut or over a curve. */
import assert from 'node:assert/strict';
import { rmSync } from 'node:fs';
import { after, before, describe, test } from 'node:test';
import { drawn, folder, launch, open } from './browser.mjs';
import { GRAPH, LINES, PLOT, recording } from './examples.mjs';
import { SHOP } from './heap-data.mjs';
import { JOBS } from './jobs-data.mjs';
import { pageOf, syntheticData, syntheticDiff } from './synthetic-data.mjs';

let browser;
let directory;
before(async () => {
  browser = await launch();
  directory = folder();
});
after(async () => {
  await browser.close();
  rmSync(directory, { recursive: true });
});

/** Opens a page in a window of a width, and calls `check` with it. */
async function at(width, template, data, check) {
  const { page, errors, close } = await open(browser, pageOf(directory, template, data), { viewport: { width, height: 900 }, reducedMotion: 'reduce' });
  await check(page);
  assert.deepEqual(errors, []);
  await close();
}

const boxes = (page, selector) =>
  page.evaluate((selector) => [...document.querySelectorAll(selector)].map((found) => found.getBoundingClientRect().toJSON()), selector);

describe('a phone', () => {
  test('shows the controls of a flame graph in few rows', () =>
    at(400, 'flamegraph', recording(), async (page) => {
      const [controls] = await boxes(page, '.controls');
      // Five rows of 28 pixels and their distances; search and filter have separate rows.
      assert.ok(controls.height <= 190, `${controls.height} pixels`);
    }));

  test('leaves no empty space between a small flame graph and the findings', () =>
    at(400, 'flamegraph', recording(), async (page) => {
      const [[graph], [findings]] = [await boxes(page, '.graph'), await boxes(page, '.findings')];
      const [last] = (await boxes(page, '.findings ol > li')).slice(-1);
      // Five rows of frames and an empty one, of 22 pixels each.
      assert.ok(graph.height <= 136, `${graph.height} pixels`);
      assert.ok(findings.bottom - last.bottom < 30, `${findings.bottom - last.bottom} pixels`);
    }));

  test('shows titles in full', () =>
    at(400, 'graph', { ...GRAPH, head: { ...GRAPH.head, title: '3 of 4000 objects of type __main__.Order' } }, async (page) => {
      const isCut = await page.evaluate(() => {
        const title = document.querySelector('h1');
        return title.scrollWidth > title.clientWidth || title.scrollHeight > title.clientHeight;
      });
      assert.ok(!isCut);
    }));

  test('shows the name of each row of a table', () =>
    at(400, 'table', recording(), async (page) => {
      for (const name of await boxes(page, 'tbody td.name')) assert.ok(name.width >= 150 && name.right <= 400, JSON.stringify(name));
    }));

  test('shows the whole path of a leak suspect', () => {
    const path = `sys.modules['__main__'].__dict__['${'x'.repeat(60)}'].handlers`;
    const data = { ...SHOP, head: { ...SHOP.head, suspects: SHOP.head.suspects.map((suspect) => ({ ...suspect, evidence: [`held by  ${path}`] })) } };
    return at(400, 'heap', data, async (page) => {
      const scrolled = await page.evaluate(() => [...document.querySelectorAll('.scroll')].map((box) => box.scrollWidth - box.clientWidth));
      assert.ok(scrolled.length > 0 && scrolled.every((over) => over <= 0), String(scrolled));
    });
  });
});

describe('a tablet', () => {
  test('shows the name of each row of a table, although there are findings', () =>
    at(768, 'table', recording(), async (page) => {
      for (const name of await boxes(page, 'tbody td.name')) assert.ok(name.width >= 150 && name.right <= 768, JSON.stringify(name));
      assert.equal(await page.locator('.findings').count(), 1);
    }));

  test('shows the names of the processes of a timeline', () =>
    at(768, 'timeline', recording(), async (page) => {
      for (const name of await boxes(page, '.processes tbody td:first-child')) assert.ok(name.width >= 150, JSON.stringify(name));
    }));

  test('shows the numbers of all jobs in full', () =>
    at(768, 'jobs', JOBS, async (page) => {
      const cut = await page.evaluate(() =>
        [...document.querySelectorAll('.rows :is(th button, td:not(.name))')].filter((cell) => cell.scrollWidth > cell.clientWidth).map((cell) => cell.textContent),
      );
      assert.deepEqual(cut, []);
    }));

  test('wraps long lines of code', () =>
    at(768, 'lines', LINES, async (page) => {
      const over = await page.evaluate(() => [...document.querySelectorAll('.source')].map((box) => box.scrollWidth - box.clientWidth));
      assert.ok(over.length > 0 && over.every((pixels) => pixels <= 0), String(over));
    }));

  test('shows the legend of the chart', () =>
    at(768, 'flamegraph', recording(), async (page) => {
      const [[chart], [legend]] = [await boxes(page, '.timeline'), await boxes(page, '.timeline .u-legend')];
      assert.ok(legend.bottom <= chart.bottom, `${legend.bottom} below ${chart.bottom}`);
    }));
});

describe('a graph of calls deeper than its window', () => {
  const depth = 30;
  const frames = Array.from({ length: depth }, (_, level) => [level, `call_${level}`, '/srv/job/job.py', level + 1]);
  test('opens with a whole row at its top', () =>
    at(1280, 'flamegraph', syntheticData({ frames, own: [[depth, 0, 1_000, 1_000, 1_000]] }), async (page) => {
      const top = await page.evaluate(() => document.querySelector('.graph').scrollTop);
      assert.ok(top > 0 && top % 22 === 0, `${top} pixels`);
    }));
});

describe('a search field', () => {
  const difference = () => syntheticDiff({ frames: [[0, 'main', '/srv/job/job.py', 1]], own: [[1, 0, 1_000, 2_000]] });
  const examples = { flamegraph: recording, table: recording, timeline: recording, diff: difference, heap: () => SHOP, jobs: () => JOBS };
  for (const [template, data] of Object.entries(examples)) {
    for (const width of [400, 800, 1280]) {
      test(`shows its hint in full in a ${template} of ${width} pixels`, () =>
        at(width, template, data(), async (page) => {
          const room = await page.evaluate(() => {
            const field = document.querySelector('.search input');
            const text = document.createElement('canvas').getContext('2d');
            text.font = getComputedStyle(field).font;
            const style = getComputedStyle(field);
            return field.clientWidth - Number.parseFloat(style.paddingLeft) - Number.parseFloat(style.paddingRight) - text.measureText(field.placeholder).width;
          });
          assert.ok(room >= 0, `${room} pixels`);
        }));
    }
  }
});

describe('the facts of a page', () => {
  const facts = (page) => page.locator('.about').first().innerText();

  test('name the host as such in a heap and in jobs', async () => {
    await at(1280, 'heap', SHOP, async (page) => assert.ok((await facts(page)).includes(`host ${SHOP.head.host} `)));
    await at(1280, 'jobs', JOBS, async (page) => assert.ok((await facts(page)).includes('host web-1, web-2 ')));
  });

  test('name the mode of both sides of a diff', () =>
    at(1280, 'diff', syntheticDiff({ frames: [[0, 'main', '/srv/job/job.py', 1]], own: [[1, 0, 1_000, 2_000]] }), async (page) => {
      const sides = await page.locator('.side').allInnerTexts();
      assert.equal(sides.length, 2);
      for (const side of sides) assert.match(side, /· mode: \w+/);
    }));

  test('label the list of editors of a page of lines', () =>
    at(1280, 'lines', LINES, async (page) => assert.match(await facts(page), /Editor:/)));
});

describe('the timeline of jobs', () => {
  test('has different texts at both ends, also within one second', () => {
    const { head } = JOBS;
    return at(1280, 'jobs', { ...JOBS, head: { ...head, to: head.from + 0.374 } }, async (page) => {
      assert.deepEqual(await page.locator('.axis span').allInnerTexts(), ['2023-11-14 22:13:20 UTC', '+374 ms']);
    });
  });

  test('shows the host of each process in full', () => {
    const workers = JOBS.workers.map((worker) => ({ ...worker, name: '14242 (shopserve.py)' }));
    return at(1280, 'jobs', { ...JOBS, workers }, async (page) => {
      const cut = await page.evaluate(() => [...document.querySelectorAll('.worker .label')].map((label) => label.scrollWidth - label.clientWidth));
      assert.deepEqual(cut, [0, 0]);
    });
  });
});

describe('a chart', () => {
  for (const width of [1440, 400]) {
    test(`has the name of the peak above its curves at ${width} pixels`, () =>
      at(width, 'flamegraph', recording(), async (page) => {
        await page.evaluate(() => {
          window.texts = [];
          const { fillText } = CanvasRenderingContext2D.prototype;
          CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
            if (String(text).startsWith('peak')) window.texts.push({ y, canvas: this.canvas.getBoundingClientRect().top });
            return fillText.call(this, text, x, y);
          };
        });
        // A change of the colours redraws the chart.
        await page.keyboard.press('d');
        await drawn(page);
        const texts = await page.evaluate(() => window.texts);
        const [plot] = await boxes(page, '.timeline .u-over');
        assert.ok(texts.length > 0);
        for (const { y, canvas } of texts) assert.ok(canvas + y <= plot.top, `${canvas + y} is below ${plot.top}`);
      }));
  }
});

test('parts of the bar of owners are as wide as their shares', () =>
  at(1440, 'flamegraph', recording(), async (page) => {
    const parts = (await boxes(page, '.ownership .shares i')).map(({ width }) => width);
    const shares = (await page.locator('.ownership li b').allInnerTexts()).map(Number.parseFloat);
    const all = parts.reduce((sum, width) => sum + width, 0);
    assert.ok(shares.length >= 3);
    assert.deepEqual(parts.map((width) => Math.round((100 * width) / all)), shares.map(Math.round));
  }));

test('the frame of an object graph has the background colour of the picture, light and dark', () =>
  at(1440, 'graph', GRAPH, async (page) => {
    const papers = [];
    for (const key of ['d', 'd']) {
      const [frame, paper] = await page.evaluate(() => [
        getComputedStyle(document.querySelector('#view')).backgroundColor,
        getComputedStyle(document.querySelector('#view .paper')).fill,
      ]);
      assert.equal(frame, paper);
      papers.push(paper);
      await page.keyboard.press(key);
      await drawn(page);
    }
    assert.notEqual(papers[0], papers[1]);
  }));

test('the chart of a timeline fits a window of 400 pixels', () =>
  at(400, 'plot', PLOT, async (page) => {
    assert.ok((await page.evaluate(() => document.documentElement.scrollWidth)) <= 400);
  }));
