/** Builds one page per run, named by the mode: `vite build --mode flamegraph`. */
import { defineConfig } from 'vite';
import { oneFile } from './one-file.ts';

/** The pages and their titles until their data has been read. */
const TITLES: Record<string, string> = {
  flamegraph: 'Flame graph',
  table: 'Table',
  diff: 'Difference',
  timeline: 'Timeline',
  heap: 'Heap',
  jobs: 'Jobs',
  lines: 'Lines',
  plot: 'Memory over time',
  graph: 'Objects',
};

export default defineConfig(({ mode }) => ({
  plugins: [oneFile(mode, TITLES[mode] ?? mode)],
  build: {
    // scripts/web-fresh sets this to compare a fresh build with the committed pages.
    outDir: process.env.HEAPTIDE_WEB_OUT ?? 'dist',
    emptyOutDir: false,
    target: 'es2022',
    cssCodeSplit: false,
    modulePreload: false,
    assetsInlineLimit: 0,
    rollupOptions: { input: 'page.html' },
  },
}));
