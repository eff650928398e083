/** Builds one page per run, named by the mode: `vite build --mode flamegraph`. */
import { defineConfig } from 'vite';
import { oneFile } from './one-file.ts';

export default defineConfig(({ mode }) => ({
  plugins: [oneFile()],
  build: {
    // scripts/web-fresh sets this to compare a fresh build with the committed pages.
    outDir: process.env.HEAPTIDE_WEB_OUT ?? 'dist',
    emptyOutDir: false,
    target: 'es2022',
    cssCodeSplit: false,
    modulePreload: false,
    assetsInlineLimit: 0,
    rollupOptions: { input: `${mode}.html` },
  },
}));
