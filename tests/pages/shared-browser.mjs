/** One browser and one temporary folder for all tests of a file. Node runs each test file in its own process. */
import { rmSync } from 'node:fs';
import { after, before } from 'node:test';
import { folder, launch } from './browser.mjs';

export let browser;
export let directory;

before(async () => {
  browser = await launch();
  directory = folder();
});
after(async () => {
  await browser.close();
  rmSync(directory, { recursive: true });
});
