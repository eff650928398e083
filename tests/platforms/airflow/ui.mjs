/**
 * Walks through Airflow's real UI in Chromium: the Memory tabs of a task instance and of a DAG, and the components.
 *
 * usage: ADDRESS=http://127.0.0.1:PORT SHOTS=folder node ui.mjs   (users and runs are those of test_stack.py)
 */
import assert from 'node:assert/strict';
import { mkdirSync } from 'node:fs';
import { launch } from '../../pages/browser.mjs';

const { ADDRESS, SHOTS } = process.env;
const TAB = '/dags/memory_cases/runs/one/tasks';
mkdirSync(SHOTS, { recursive: true });

const browser = await launch();
const errors = [];

/** Opens a window in which the user is logged in. */
async function logIn(user, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  context.setDefaultTimeout(300_000);
  const page = await context.newPage();
  page.on('pageerror', (error) => errors.push(String(error)));
  await page.goto(`${ADDRESS}/auth/login`);
  await page.locator('input[name=username]').fill(user);
  await page.locator('input[name=password]').fill(user);
  await page.locator('button[type=submit]').click();
  await page.waitForURL((url) => !url.pathname.startsWith('/auth'));
  return page;
}

/** Returns the frame of Heaptide once its page is drawn. */
async function memory(page, title) {
  const frame = page.frameLocator(`iframe[title="${title}"]`);
  await frame.locator('html[data-ready=true]').waitFor();
  return frame;
}

/** Fails if the content of the frame is wider than the frame. */
async function fits(frame, what) {
  const overhang = await frame.locator('html').evaluate((html) => html.scrollWidth - html.clientWidth);
  assert.ok(overhang <= 0, `${what} is ${overhang} pixels too wide`);
  const tables = await frame.locator('.scroll').evaluateAll((all) => all.map((one) => one.scrollWidth - one.clientWidth));
  assert.deepEqual(tables.filter((hidden) => hidden > 0), [], `tables of ${what} hide pixels at their right`);
}

/** Fails if the flame graph shows fewer than ten rows before anybody scrolls in its frame. */
async function showsFlameGraph(frame, what) {
  const graph = frame.frameLocator('iframe').locator('.graph');
  await graph.waitFor();
  const visible = await graph.evaluate((one) => innerHeight - one.getBoundingClientRect().top);
  assert.ok(visible >= 220, `${what}: ${visible} pixels of the flame graph are visible`);
}

const shot = (page, name) => page.screenshot({ path: `${SHOTS}/${name}.png` });
const setTheme = (page, theme) => page.evaluate((wanted) => localStorage.setItem('theme', wanted), theme);

const page = await logIn('ada');

// The tab of a task instance.
await page.goto(`${ADDRESS}${TAB}/case_grows`);
await page.getByRole('link', { name: 'Memory', exact: true }).last().click();
let frame = await memory(page, 'Memory');
const figures = await frame.locator('.figures').innerText();
assert.match(figures, /peak of the heap\s+3\d\.\d MB|3\d\.\d MB\s+peak of the heap/);
assert.match(await frame.locator('table').first().innerText(), /case_grows\s+memory_cases\.py:\d+\s+20\.0 MB/);
const graph = frame.frameLocator('iframe[title="Memory over time and flame graph"]');
await graph.locator('html[data-ready=true]').waitFor();
assert.equal(await graph.locator('html').getAttribute('data-theme'), await frame.locator('html').getAttribute('data-theme'));
await graph.locator('canvas').first().waitFor();
await showsFlameGraph(frame, 'the tab');
await setTheme(page, 'light');
await page.reload();
frame = await memory(page, 'Memory');
await frame.frameLocator('iframe').locator('html[data-ready=true]').waitFor();
assert.equal(await frame.locator('html').getAttribute('data-theme'), 'light');
await shot(page, 'task-light');

// Airflow's theme changes while the tab is open.
await page.evaluate(() => {
  document.documentElement.classList.remove('light');
  document.documentElement.classList.add('dark');
});
await frame.locator('html[data-theme=dark]').waitFor();
await setTheme(page, 'dark');
await page.reload();
frame = await memory(page, 'Memory');
await frame.frameLocator('iframe').locator('html[data-theme=dark][data-ready=true]').waitFor();
await shot(page, 'task-dark');

// Other endings, and a mapped task.
for (const [path, expected] of [
  ['case_killed', /killed/],
  ['case_retried', /try 1[\s\S]*try 2/],
  ['case_deferred', /try 1, part 1[\s\S]*part 2/],
  ['case_mapped/mapped/1', /case_mapped \[1\]/],
  ['plain', /No memory was recorded/],
]) {
  await page.goto(`${ADDRESS}${TAB}/${path}/plugin/memory`);
  frame = await memory(page, 'Memory');
  assert.match(await frame.locator('main').innerText(), expected, path);
}

// The tab of the DAG.
await page.goto(`${ADDRESS}/dags/memory_cases`);
await page.getByRole('link', { name: 'Memory', exact: true }).last().click();
frame = await memory(page, 'Memory');
assert.equal(await frame.locator('tbody tr').count(), 9);
assert.ok((await frame.locator('svg.bars rect.peak').count()) >= 9);
await shot(page, 'dag-dark');
// Even next to the widest charts, of 50 processes, the names of tasks are not wrapped.
const names = await frame.locator('tbody').evaluate((body) => {
  for (const chart of body.querySelectorAll('svg.bars')) chart.setAttribute('width', '200');
  return [...body.querySelectorAll('td:first-child code')].map((name) => name.getClientRects().length);
});
assert.deepEqual(names, Array(9).fill(1));
await setTheme(page, 'light');
await page.reload();
frame = await memory(page, 'Memory');
await frame.locator('html[data-theme=light] tbody').waitFor();
await shot(page, 'dag-light');
await setTheme(page, 'dark');

// The components.
await page.goto(`${ADDRESS}/plugin/component-memory`);
frame = await memory(page, 'Component Memory');
await shot(page, 'components-dark');
const row = () => frame.locator('tr', { hasText: 'triggerer' }).first();
await row().getByRole('button', { name: 'Snapshot' }).click();
await frame.locator('td', { hasText: 'snapshots/triggerer_memory' }).first().waitFor();
await row().getByRole('button', { name: 'Stop' }).click();
await until(async () => (await row().innerText()).includes('on standby'));
await row().getByRole('button', { name: 'Start' }).click();
await until(async () => (await row().innerText()).includes('recording'));
assert.match(await frame.locator('table').nth(1).innerText(), /memory_cases\.py\s+[78]\.\d\d MB/);
await setTheme(page, 'light');
await page.reload();
frame = await memory(page, 'Component Memory');
await shot(page, 'components-light');

/** Reloads the page of components until the condition holds. */
async function until(condition) {
  for (let round = 0; round < 300 && !(await condition()); round++) {
    await page.waitForTimeout(300);
    await page.reload();
    frame = await memory(page, 'Component Memory');
  }
  assert.ok(await condition());
}

// A window of 400 pixels: the pages alone, and in Airflow's frame, whose menu leaves them even less space.
const narrow = await logIn('ada', { viewport: { width: 400, height: 800 } });
for (const theme of ['light', 'dark']) {
  await narrow.emulateMedia({ colorScheme: theme });
  for (const [name, title, tab, path] of [
    ['task', 'Memory', `${TAB}/case_grows/plugin/memory`, '/heaptide/task-instance?dag_id=memory_cases&run_id=one&task_id=case_grows'],
    ['dag', 'Memory', '/dags/memory_cases/plugin/dag-memory', '/heaptide/dag?dag_id=memory_cases'],
    ['components', 'Component Memory', '/plugin/component-memory', '/heaptide/components'],
  ]) {
    await narrow.goto(`${ADDRESS}${path}`);
    await narrow.locator(`html[data-ready=true][data-theme=${theme}]`).waitFor();
    await fits(narrow, `the page of ${name}`);
    if (name === 'task') await showsFlameGraph(narrow, 'the page of 400 pixels');
    await narrow.waitForLoadState('networkidle');
    await narrow.screenshot({ path: `${SHOTS}/${name}-narrow-${theme}.png`, fullPage: true });
    await setTheme(narrow, theme);
    await narrow.goto(`${ADDRESS}${tab}`);
    const inside = await memory(narrow, title);
    await inside.locator(`html[data-theme=${theme}]`).waitFor();
    await fits(inside, `the page of ${name} in Airflow's frame`);
    await shot(narrow, `${name}-narrow-tab-${theme}`);
  }
}

// Users of another team, and strangers.
const stranger = await logIn('bea');
await stranger.goto(`${ADDRESS}/heaptide/dag?dag_id=memory_cases`);
assert.match(await stranger.locator('body').innerText(), /forbidden/i);

assert.deepEqual(errors, []);
await browser.close();
console.log('ok');
