/** The chart of a timeline. Drag or keys zoom it; the part shown is a signal, so that calls below it follow. */
import { signal } from '@preact/signals';
import { useLayoutEffect, useRef } from 'preact/hooks';
import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';
import { attach, type Colour, highestOf, plotOptions, styleColours, type Values } from '../chart/plot.ts';
import { bytes, duration } from '../model/format.ts';
import { isDark } from '../state.ts';
import type { PlotData } from './data.ts';

/** Colours of curves: the first is that of the sum. */
const LIGHT = ['#0f766e', '#b45309', '#1d4ed8', '#be185d', '#6d28d9', '#15803d', '#0e7490', '#9a3412', '#475569', '#a16207'];
const DARK = ['#57c9ba', '#f0b35c', '#93b4f8', '#f390b8', '#b9a3f5', '#86d98f', '#67c7de', '#f0a184', '#a3b3c2', '#dcc36a'];
const HEIGHT = 360;
/** A zoomed part is at least this share of the whole. */
const MIN_SHARE = 1e-4;

export function curveColour(at: number, dark: boolean): string {
  const colours = dark ? DARK : LIGHT;
  return colours[at % colours.length]!;
}

/** The part of the time axis that is shown, in seconds. */
export const shownPart = signal<[from: number, to: number]>([0, 1]);
let whole: [from: number, to: number] = [0, 1];

/** Zooms or moves; returns whether the key was one of these. */
export function zoomKey(key: string): boolean {
  const [from, to] = shownPart.value;
  const width = to - from;
  const middle = (from + to) / 2;
  switch (key) {
    case '+':
    case '=':
      show(middle - width / 4, middle + width / 4);
      return true;
    case '-':
      show(middle - width, middle + width);
      return true;
    case 'ArrowLeft':
      show(from - width / 8, to - width / 8);
      return true;
    case 'ArrowRight':
      show(from + width / 8, to + width / 8);
      return true;
    case '0':
      shownPart.value = whole;
      return true;
    default:
      return false;
  }
}

/** Shows a part, moved into the run. */
function show(from: number, to: number): void {
  const all = whole[1] - whole[0];
  const width = Math.min(all, Math.max(to - from, all * MIN_SHARE));
  const start = Math.max(whole[0], Math.min(from, whole[1] - width));
  shownPart.value = [start, start + width];
}

export function Chart({ data, hidden }: { data: PlotData; hidden: ReadonlySet<number> }) {
  const box = useRef<HTMLDivElement>(null);
  const chart = useRef<uPlot | undefined>(undefined);
  const dark = isDark.value;
  useLayoutEffect(() => {
    const { from, to } = data.head;
    whole = [from, to > from ? to : from + 1e-3];
    shownPart.value = whole;
  }, [data]);
  useLayoutEffect(() => {
    const made = attach(box.current!, options(data, styleColours(), box.current!.clientWidth, dark), joined(data));
    chart.current = made.chart;
    return made.stop;
  }, [data, dark]);
  useLayoutEffect(() => {
    data.series.forEach((_, at) => chart.current!.setSeries(at + 1, { show: !hidden.has(at) }));
  }, [data, dark, hidden]);
  const [from, to] = shownPart.value;
  useLayoutEffect(() => chart.current!.setScale('x', { min: from, max: to }), [data, dark, from, to]);
  const { peak } = data.head;
  const summary = peak ? `Memory over time: peak ${bytes(peak[1])} after ${duration(peak[0] * 1e9)}` : 'Memory over time';
  return <div class="timeline" ref={box} role="img" aria-label={summary} />;
}

/** Returns all curves on one time axis. */
function joined({ series }: PlotData): uPlot.AlignedData {
  if (series.length === 0) return [[]];
  return uPlot.join(series.map((one) => [one.seconds, one.bytes] as uPlot.AlignedData));
}

function options(data: PlotData, colour: Colour, width: number, dark: boolean): uPlot.Options {
  const { limit, from, to } = data.head;
  const highest = Math.max(highestOf(...data.series.map((one) => one.bytes as Values)), limit ?? 0);
  const base = plotOptions(
    colour,
    { width, height: HEIGHT },
    { seconds: to, bytes: highest },
    data.series.map((one, at) => ({
      label: one.name,
      stroke: curveColour(at, dark),
      width: at === 0 ? 2 : 1.5,
      spanGaps: true,
      ...(at === 0 && { fill: `${curveColour(0, dark)}22` }),
    })),
  );
  return {
    ...base,
    scales: { x: { time: false, range: (_, min, max) => [min ?? from, max ?? to] }, y: { range: [0, highest * 1.08] } },
    cursor: { y: false, drag: { x: true, y: false, setScale: false }, points: { size: 6 } },
    hooks: {
      draw: [(chart) => drawMarks(chart, data, colour, dark)],
      setSelect: [
        (chart) => {
          const { left, width: dragged } = chart.select;
          if (dragged < 3) return;
          show(chart.posToVal(left, 'x'), chart.posToVal(left + dragged, 'x'));
          chart.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
        },
      ],
      ready: [(chart) => chart.over.addEventListener('dblclick', () => (shownPart.value = whole))],
    },
  };
}

/** Draws the limit, the peak and trends as lines without texts, which would lie on curves: the header has their values. */
function drawMarks(chart: uPlot, data: PlotData, colour: Colour, dark: boolean): void {
  const { ctx, bbox } = chart;
  const density = uPlot.pxRatio;
  const x = (seconds: number) => chart.valToPos(seconds, 'x', true);
  const y = (bytes: number) => chart.valToPos(bytes, 'y', true);
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  ctx.lineWidth = density;
  const line = (stroke: string, dash: number[], from: [number, number], to: [number, number]) => {
    ctx.strokeStyle = stroke;
    ctx.setLineDash(dash.map((part) => part * density));
    ctx.beginPath();
    ctx.moveTo(...from);
    ctx.lineTo(...to);
    ctx.stroke();
  };
  const { limit, peak } = data.head;
  if (limit !== null) line(colour('--warn'), [6, 4], [bbox.left, y(limit)], [bbox.left + bbox.width, y(limit)]);
  data.series.forEach(({ trend }, at) => {
    if (trend) line(curveColour(at, dark), [2, 3], [x(trend[0][0]), y(trend[0][1])], [x(trend[1][0]), y(trend[1][1])]);
  });
  if (peak) {
    line(colour('--ink'), [3, 3], [x(peak[0]), bbox.top + bbox.height], [x(peak[0]), y(peak[1])]);
    ctx.fillStyle = colour('--ink');
    ctx.beginPath();
    ctx.arc(x(peak[0]), y(peak[1]), 3 * density, 0, 2 * Math.PI);
    ctx.fill();
  }
  ctx.restore();
}
