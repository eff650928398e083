/** Keys of a flame graph, wherever on the page they are pressed. */
import { change, settings } from '../state.ts';
import { nextMatch } from './Controls.tsx';
import { resetZoom } from './FlameView.tsx';
import type { GraphState } from './graph-state.ts';

/** Handles a key; returns whether it was one of the graph's. */
export function graphKey(graph: GraphState, key: string): boolean {
  const now = settings.value;
  switch (key) {
    case 'i':
      change({ inverted: !now.inverted, zoom: [] });
      return true;
    case 'l':
      change({ merge: now.merge === 'line' ? 'function' : 'line' });
      return true;
    case 'h':
      change({ hideImports: !now.hideImports });
      return true;
    case 'k':
      change({ hideNative: !now.hideNative, zoom: [] });
      return true;
    case 'u':
      change({ hideInterpreter: !now.hideInterpreter, zoom: [] });
      return true;
    case 'y':
      change({ myCode: !now.myCode, zoom: [] });
      return true;
    case 's':
      change({ splitThreads: !now.splitThreads, zoom: [] });
      return true;
    case 'o':
      change({ orientation: now.orientation === 'icicle' ? 'flame' : 'icicle' });
      return true;
    case 'c':
      document.querySelector<HTMLButtonElement>('.frame .copy button')?.click();
      return true;
    case 'e':
      document.getElementById('editor')?.click();
      return true;
    case 'n':
    case 'N':
      nextMatch(graph, key === 'n' ? 1 : -1);
      return true;
    case 'Backspace':
      graph.zoomTo(graph.tree.value.parent[graph.zoom.value]!);
      return true;
    case 'Escape':
      if (now.search) change({ search: '' });
      else resetZoom();
      return true;
    case 'ArrowDown':
    case 'ArrowUp':
    case 'ArrowLeft':
    case 'ArrowRight':
    case 'Enter': {
      // The keys of the graph work from anywhere but a control.
      const canvas = document.querySelector('canvas[role=application]') as HTMLCanvasElement | null;
      if (!canvas || document.activeElement !== document.body) return false;
      canvas.focus();
      canvas.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: false }));
      return true;
    }
    default:
      return false;
  }
}
