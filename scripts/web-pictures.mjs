/**
 * Makes docs/images/*.png from real runs: `node scripts/web-pictures.mjs HEAPTIDE`, where HEAPTIDE is the command of an
 * environment that also has pandas. Look at them when a page changes: would you be glad to receive it?
 */
import { execFileSync } from 'node:child_process';
import { copyFileSync, mkdirSync, rmSync } from 'node:fs';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { folder, launch, open } from '../tests/pages/browser.mjs';

const root = fileURLToPath(new URL('..', import.meta.url));
const heaptide = process.argv[2] ?? join(root, 'build/venv/bin/heaptide');
const images = join(root, 'docs/images');

/** File, program, command, address, colours, and where the pointer rests: share of the width, row. */
const PICTURES = [
  ['flamegraph-light', 'bench/workloads/frames.py', 'flamegraph', '', 'light', [0.47, 1]],
  ['flamegraph-dark', 'bench/workloads/frames.py', 'flamegraph', '', 'dark', [0.47, 1]],
  ['flamegraph-search', 'bench/workloads/frames.py', 'flamegraph', '#inverted=true&search=take', 'light', null],
  ['flamegraph-leak', 'examples/memory-leak/job.py', 'flamegraph', '#measure=leaked', 'light', [0.5, 2]],
  ['table-light', 'bench/workloads/frames.py', 'table', '', 'light', null],
  ['table-dark', 'bench/workloads/frames.py', 'table', '#grouping=function', 'dark', null],
];

const made = folder();
// Its name is in the pictures.
const place = join(made, 'shop');
mkdirSync(place);
const run = (...words) => execFileSync(heaptide, words, { cwd: place, stdio: ['ignore', 'ignore', 'inherit'] });
mkdirSync(images, { recursive: true });
const browser = await launch();
for (const program of new Set(PICTURES.map((picture) => picture[1]))) {
  copyFileSync(join(root, program), join(place, basename(program)));
  run('run', '-o', `heaptide-${basename(program)}.tide`, basename(program));
}
for (const [name, program, command, hash, colorScheme, pointer] of PICTURES) {
  const file = join(place, `${name}.html`);
  run(command, '-o', file, `heaptide-${basename(program)}.tide`);
  const viewport = { width: 1280, height: 800 };
  const { page, close } = await open(browser, file, { hash, colorScheme, viewport, reducedMotion: 'reduce' });
  if (pointer) {
    const box = await page.locator('canvas[role=application]').boundingBox();
    await page.mouse.move(box.x + pointer[0] * box.width, box.y + pointer[1] * 22 + 11);
    await page.waitForSelector('.tooltip');
  }
  await page.screenshot({ path: join(images, `${name}.png`) });
  console.log(`docs/images/${name}.png`);
  await close();
}
await browser.close();
rmSync(made, { recursive: true });
