/** Builds one page a run, named by the mode: `vite build --mode flamegraph`. */
import { defineConfig } from 'vite';
import { oneFile } from './one-file.ts';

export default defineConfig(({ mode }) => ({
  plugins: [oneFile()],
  build: {
    // Named by whoever proves that the committed pages are those that the sources make.
    outDir: process.env.HEAPTIDE_WEB_OUT ?? 'dist',
    emptyOutDir: false,
    target: 'es2022',
    cssCodeSplit: false,
    modulePreload: false,
    assetsInlineLimit: 0,
    rollupOptions: { input: `${mode}.html` },
  },
}));
