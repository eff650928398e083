/**
 * Creates docs/images/*.png from real runs: `node scripts/web-pictures.mjs HEAPTIDE [NAME…]`, where HEAPTIDE is the command of
 * an environment that also has pandas. Run it after a change to a page, and check the pictures.
 */
import { execFileSync } from 'node:child_process';
import { copyFileSync, mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { folder, launch, open } from '../tests/pages/browser.mjs';

const root = fileURLToPath(new URL('..', import.meta.url));
const [heaptide = join(root, 'build/venv/bin/heaptide'), ...wanted] = process.argv.slice(2);
const images = join(root, 'docs/images');

/** Recordings: capture, program, arguments. */
const RUNS = [
  ['frames', 'bench/workloads/frames.py'],
  ['before', 'examples/regression/job.py'],
  ['after', 'examples/regression/job.py', '--cache'],
  ['workers', 'examples/workers/job.py'],
];

/** File, command, captures, fragment, colours, and position of the pointer: share of the width, row. */
const PICTURES = [
  ['flamegraph-light', ['flamegraph'], ['frames'], '', 'light', [0.47, 1]],
  ['flamegraph-search', ['flamegraph'], ['frames'], '#inverted=true&search=take', 'light', null],
  ['flamegraph-interval', ['flamegraph'], ['frames'], '#from=40&to=60', 'light', null],
  ['table-light', ['table'], ['frames'], '', 'light', null],
  ['table-dark', ['table'], ['frames'], '#grouping=function', 'dark', null],
  ['diff-light', ['diff', '--html'], ['before', 'after'], '', 'light', [0.3, 3]],
  ['timeline-light', ['timeline'], ['workers'], '', 'light', null],
  ['diff-dark', ['diff', '--html'], ['before', 'after'], '#view=table', 'dark', null],
  ['heap-suspects', ['heap', 'explore'], ['objects'], '', 'light', null],
  ['heap-light', ['heap', 'explore'], ['objects'], '#tab=types&type=job.Order', 'light', null],
  ['heap-dark', ['heap', 'explore'], ['objects'], '#tab=tree', 'dark', null],
  ['lines-light', ['lines', '--from'], ['frames'], '', 'light', null],
];

/** Heights of screenshots that are lower than the default. */
const HEIGHTS = { 'lines-light': 470, 'heap-suspects': 450 };

const shown = PICTURES.filter(([name]) => wanted.length === 0 || wanted.includes(name));
const made = folder();
// The pictures show the name of this folder.
const scratch = join(made, 'shop');
mkdirSync(scratch);
/** A program that takes a snapshot of its own objects, instead of being recorded. */
const SNAPSHOT = 'examples/object-heap/job.py';
const captures = (name) => name === 'objects' ? ['job.heap'] : readdirSync(scratch).filter((file) => file.startsWith(`${name}.tide`)).sort();
const run = (...words) => execFileSync(heaptide, words, { cwd: scratch, stdio: ['ignore', 'ignore', 'inherit'] });
mkdirSync(images, { recursive: true });
const browser = await launch();
for (const [capture, program, ...words] of RUNS) {
  if (!shown.some(([, , names]) => names.includes(capture))) continue;
  // One folder per run: several programs have the same name, and reports do not show a source that changed after the run.
  const copy = join('runs', capture, basename(program));
  mkdirSync(join(scratch, 'runs', capture), { recursive: true });
  copyFileSync(join(root, program), join(scratch, copy));
  run('run', '--follow-fork', '-o', `${capture}.tide`, copy, ...words);
}
if (shown.some(([, , names]) => names.includes('objects'))) {
  const python = join(dirname(heaptide), 'python');
  copyFileSync(join(root, SNAPSHOT), join(scratch, 'job.py'));
  // Imports the job, so that its classes belong to the module `job`, not to `__main__`.
  writeFileSync(join(scratch, 'orders.py'), 'import job\n\njob.main()\n');
  execFileSync(python, ['orders.py', 'job.heap'], { cwd: scratch, stdio: ['ignore', 'ignore', 'inherit'] });
}
for (const [name, command, names, hash, colorScheme, pointer] of shown) {
  const file = join(scratch, `${name}.html`);
  // The command `lines` writes a page only with --html.
  const output = command[0] === 'lines' ? '--html' : '-o';
  run(...command, ...names.flatMap(captures), output, file);
  const viewport = { width: 1280, height: HEIGHTS[name] ?? 800 };
  const { page, close } = await open(browser, file, { hash, colorScheme, viewport, reducedMotion: 'reduce' });
  if (pointer) {
    const box = await page.locator('canvas[role=application]').boundingBox();
    await page.mouse.move(box.x + pointer[0] * box.width, box.y + pointer[1] * 22 + 11);
    await page.waitForSelector('.tooltip');
  }
  // Replace the temporary folder of this run, which means nothing to readers.
  await page.evaluate((made) => {
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) texts.currentNode.data = texts.currentNode.data.replaceAll(made, '/srv');
  }, made);
  await page.screenshot({ path: join(images, `${name}.png`) });
  console.log(`docs/images/${name}.png`);
  await close();
}
await browser.close();
rmSync(made, { recursive: true });
