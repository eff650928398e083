/** Shared by all charts: axes, fonts and colours; seconds on the x axis, bytes on the y axis. */
import uPlot from 'uplot';
import { axisTimes, bytes, duration } from '../model/format.ts';

export type Colour = (name: string) => string;
export type Values = (number | null)[];

export const FONT = 'ui-sans-serif, system-ui, sans-serif';

/** Returns the current colours of the style sheet. */
export function styleColours(): Colour {
  const style = getComputedStyle(document.documentElement);
  return (name) => style.getPropertyValue(name).trim();
}

export function highestOf(...lists: Values[]): number {
  let highest = 1;
  for (const list of lists) for (const value of list) if (value !== null && value > highest) highest = value;
  return highest;
}

export function plotOptions(
  colour: Colour,
  size: { width: number; height: number },
  range: { seconds: number; bytes: number },
  series: uPlot.Series[],
): uPlot.Options {
  const axis = {
    stroke: colour('--muted'),
    font: `11px ${FONT}`,
    grid: { stroke: colour('--line'), width: 1 },
    ticks: { show: false },
  };
  return {
    ...size,
    padding: [6, 26, 0, 0],
    legend: { live: true },
    cursor: { y: false, drag: { x: false, y: false }, points: { size: 6 } },
    scales: { x: { time: false, range: [0, range.seconds || 1e-3] }, y: { range: [0, range.bytes * 1.15] } },
    axes: [
      { ...axis, size: 26, values: (_, splits) => axisTimes(splits) },
      { ...axis, size: 62, space: 28, values: (_, splits) => splits.map((at) => (at === 0 ? '0' : bytes(at))) },
    ],
    series: [
      { label: 'after', value: (_, raw) => (raw === null || raw === undefined ? '' : duration(raw * 1e9)) },
      ...series.map((one) => ({
        width: 1.5,
        points: { show: false },
        value: (_: uPlot, raw: number | null) => (raw === null || raw === undefined ? '' : bytes(raw)),
        ...one,
      })),
    ],
  };
}

/** Draws each value as constant until the next. */
export const steps = uPlot.paths.stepped!({ align: 1 });

/** Creates a chart that is as wide as its box. */
export function attach(box: HTMLElement, options: uPlot.Options, data: uPlot.AlignedData): { chart: uPlot; stop: () => void } {
  const chart = new uPlot(options, data, box);
  const resized = new ResizeObserver(() => chart.setSize({ width: box.clientWidth, height: options.height }));
  resized.observe(box);
  const stop = () => {
    resized.disconnect();
    chart.destroy();
  };
  return { chart, stop };
}
