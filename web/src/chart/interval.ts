/** Selection of a time interval on a chart, by pointer or keyboard. It begins and ends at edges of the data's bins. */
import uPlot from 'uplot';
import type { Lives } from '../model/data.ts';
import { edgesAround } from '../model/intervals.ts';
import { change, settings } from '../state.ts';

/** A narrower drag counts as a click. */
const MIN_DRAG = 3;

/** Adds selection by dragging to a chart; a click clears the selection. */
export function selectable(options: uPlot.Options, lives: Lives | undefined): uPlot.Options {
  if (!lives) return options;
  const show = (chart: uPlot) => showInterval(chart, lives);
  return {
    ...options,
    cursor: { ...options.cursor, drag: { x: true, y: false, setScale: false } },
    hooks: {
      ...options.hooks,
      setSelect: [
        (chart) => {
          const { left, width } = chart.select;
          if (width < MIN_DRAG) return;
          const ns = (x: number) => chart.posToVal(x, 'x') * 1e9;
          change(edgesAround(lives, ns(left), ns(left + width)));
          show(chart);
        },
      ],
      ready: [
        (chart) => {
          let pressed = 0;
          chart.over.addEventListener('mousedown', (event) => (pressed = event.clientX));
          chart.over.addEventListener('click', (event) => {
            if (Math.abs(event.clientX - pressed) < MIN_DRAG) clearInterval();
          });
          show(chart);
        },
      ],
      setSize: [show],
    },
  };
}

/** Draws the selected interval, if any. */
export function showInterval(chart: uPlot, lives: Lives): void {
  const { from, to } = settings.peek();
  if (from < 0) {
    chart.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    return;
  }
  const x = (edge: number) => chart.valToPos(lives.edges[edge]! / 1e9, 'x');
  const height = chart.over.clientHeight;
  chart.setSelect({ left: x(from), top: 0, width: Math.max(1, x(to) - x(from)), height }, false);
}

/** The interval that a page uses when none is selected. */
let fallback: { from: number; to: number } = { from: -1, to: -1 };

export function setFallbackInterval(from: number, to: number): void {
  fallback = { from, to };
}

export function clearInterval(): void {
  change(fallback);
}

/** Handles keys: arrows move the end, with Shift the start; Escape clears. Returns whether the key was one of these. */
export function intervalKey(lives: Lives, event: KeyboardEvent): boolean {
  if (event.ctrlKey || event.metaKey || event.altKey) return false;
  const last = lives.edges.length - 1;
  const { from, to } = settings.value;
  if (event.key === 'Escape' && from >= 0) {
    clearInterval();
    return true;
  }
  const step = event.key === 'ArrowRight' ? 1 : event.key === 'ArrowLeft' ? -1 : 0;
  if (step === 0) return false;
  if (from < 0) change({ from: 0, to: Math.ceil(last / 2) });
  else if (event.shiftKey) change({ from: Math.min(Math.max(0, from + step), to - 1) });
  else change({ to: Math.max(Math.min(last, to + step), from + 1) });
  return true;
}
