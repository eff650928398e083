/** Chart of memory over time: resident size, heap, limit and peak. */
import { useLayoutEffect, useRef } from 'preact/hooks';
import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';
import type { Data } from '../model/data.ts';
import { bytes, duration } from '../model/format.ts';
import { isDark, settings } from '../state.ts';
import { intervalKey, selectable, showInterval } from './interval.ts';
import { attach, type Colour, FONT, highestOf, plotOptions, steps, styleColours, type Values } from './plot.ts';

const HEIGHT = 134;
/** Pixels above the plot for the name of the peak, where no curve is. */
const HEADROOM = 17;

interface Series {
  seconds: number[];
  heap: Values;
  resident: Values;
  limit: number | null;
  peakAt: number;
  peakBytes: number;
  peakName: string;
}

/** Returns the curves of a process; −1 for the sum of all. */
export function series(data: Data, process: number): Series {
  const { timeline, head } = data;
  const known = head.processes[process] ?? (head.processes.length === 1 ? head.processes[0] : undefined);
  const curves = timeline.processes[process] ?? timeline.together;
  const binSeconds = timeline.bin_ns / 1e9;
  const seconds = curves.heap.map((_, bin) => bin * binSeconds);
  let highest = 0;
  curves.heap.forEach((value, bin) => {
    if ((value ?? 0) > (curves.heap[highest] ?? 0)) highest = bin;
  });
  return {
    seconds,
    heap: curves.heap,
    resident: curves.resident,
    limit: known?.limit_bytes ?? null,
    ...peakOf(head, known, seconds[highest] ?? 0),
  };
}

/** Returns the mark of the peak: the moment that the rest of the page shows. */
function peakOf(head: Data['head'], known: Data['head']['processes'][0] | undefined, highestAt: number) {
  const own = { peakName: 'peak', peakAt: (known?.peak_ns ?? 0) / 1e9, peakBytes: known?.peak_bytes ?? 0 };
  if (known && (head.processes.length === 1 || head.peak_ns === null)) return own;
  const peakAt = head.peak_ns === null ? highestAt : head.peak_ns / 1e9;
  if (known) return { peakName: 'at the common peak:', peakAt, peakBytes: known.at_peak_bytes };
  // Without a common moment, the sum of the peaks is not on the curve.
  return { peakName: head.peak_ns === null ? 'sum of the own peaks:' : 'peak', peakAt, peakBytes: head.peak_bytes };
}

export function Timeline({ data }: { data: Data }) {
  const box = useRef<HTMLDivElement>(null);
  const chart = useRef<uPlot | undefined>(undefined);
  const { process, from, to } = settings.value;
  const dark = isDark.value;
  const { lives } = data;
  useLayoutEffect(() => {
    const shown = series(data, process);
    const options = selectable(chartOptions(shown, styleColours(), box.current!.clientWidth), lives);
    const made = attach(box.current!, options, [shown.seconds, shown.resident, shown.heap] as uPlot.AlignedData);
    chart.current = made.chart;
    return made.stop;
  }, [data, process, dark]);
  useLayoutEffect(() => {
    if (chart.current && lives) showInterval(chart.current, lives);
  }, [from, to]);
  const shown = series(data, process);
  const summary = `Memory over time: ${shown.peakName} ${bytes(shown.peakBytes)} after ${duration(shown.peakAt * 1e9)}`;
  if (!lives) return <div class="timeline" ref={box} role="img" aria-label={summary} />;
  return (
    <section
      class="timeline selectable"
      id="time"
      ref={box}
      role="group"
      tabIndex={0}
      aria-label={`${summary}. Drag, or use arrow keys, to select an interval`}
      onKeyDown={(event) => {
        if (!intervalKey(lives, event)) return;
        event.preventDefault();
        event.stopPropagation();
      }}
    />
  );
}

function chartOptions(shown: Series, colour: Colour, width: number): uPlot.Options {
  const highest = highestOf(shown.heap, shown.resident);
  // A limit far above would flatten the curves, so it is not drawn.
  const limit = shown.limit !== null && shown.limit < highest * 4 ? shown.limit : null;
  const range = { seconds: shown.seconds.at(-1) ?? 0, bytes: Math.max(highest, limit ?? 0) };
  const options = plotOptions(colour, { width, height: HEIGHT }, range, [
    { label: 'resident', stroke: colour('--resident'), fill: colour('--resident-fill'), width: 1.25 },
    { label: 'heap', stroke: colour('--accent'), fill: colour('--heap-fill'), width: 1.75, paths: steps },
  ]);
  return { ...options, padding: [HEADROOM, 26, 0, 0], hooks: { draw: [(chart) => drawMarks(chart, shown, limit, colour)] } };
}

function drawMarks(chart: uPlot, shown: Series, limit: number | null, colour: Colour): void {
  const { ctx, bbox } = chart;
  const density = uPlot.pxRatio;
  ctx.save();
  ctx.font = `${11 * density}px ${FONT}`;
  ctx.lineWidth = density;
  const x = Math.round(chart.valToPos(shown.peakAt, 'x', true));
  const y = Math.round(chart.valToPos(shown.peakBytes, 'y', true));
  ctx.setLineDash([3 * density, 3 * density]);
  ctx.strokeStyle = colour('--ink');
  ctx.beginPath();
  ctx.moveTo(x, bbox.top + bbox.height);
  ctx.lineTo(x, bbox.top);
  ctx.stroke();
  ctx.setLineDash([]);
  ctx.fillStyle = colour('--ink');
  ctx.beginPath();
  ctx.arc(x, y, 3 * density, 0, 2 * Math.PI);
  ctx.fill();
  const text = `${shown.peakName} ${bytes(shown.peakBytes)}`;
  const half = ctx.measureText(text).width / 2;
  ctx.textAlign = 'center';
  ctx.textBaseline = 'bottom';
  // The curves end at the top of the plot, so the text never lies on them.
  ctx.fillText(text, Math.min(Math.max(x, bbox.left + half), bbox.left + bbox.width - half), bbox.top - 3 * density);
  if (limit !== null) {
    const at = Math.round(chart.valToPos(limit, 'y', true));
    ctx.strokeStyle = ctx.fillStyle = colour('--warn');
    ctx.setLineDash([6 * density, 4 * density]);
    ctx.beginPath();
    ctx.moveTo(bbox.left, at);
    ctx.lineTo(bbox.left + bbox.width, at);
    ctx.stroke();
    ctx.textAlign = 'left';
    ctx.textBaseline = 'bottom';
    ctx.fillText(`limit ${bytes(limit)}`, bbox.left + 6 * density, at - 2 * density);
  }
  ctx.restore();
}
