/** Charts of the memory of all processes over time: stacked, or one chart per process on the same scale. */
import { useLayoutEffect, useRef } from 'preact/hooks';
import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';
import { intervalKey, selectable, showInterval } from '../chart/interval.ts';
import { attach, type Colour, FONT, highestOf, plotOptions, steps, styleColours, type Values } from '../chart/plot.ts';
import { palette } from '../colours.ts';
import { type Data, shownName } from '../model/data.ts';
import { bytes, duration } from '../model/format.ts';
import { isDark, settings } from '../state.ts';

const STACKED_HEIGHT = 230;
const SMALL_HEIGHT = 128;

/** Returns the colour of a process, the same in all charts and lists. */
export function processColour(process: number, dark: boolean): string {
  const { modules } = palette(dark);
  return modules[process % modules.length]!;
}

function seconds({ timeline }: Data): number[] {
  return timeline.together.heap.map((_, bin) => (bin * timeline.bin_ns) / 1e9);
}

/** Returns the limit if it is the same for all processes: then it is the limit of their group. */
export function commonLimit({ head }: Data): number | null {
  const limits = new Set(head.processes.map((process) => process.limit_bytes));
  return limits.size === 1 ? [...limits][0]! : null;
}

/** Returns running sums: the upper edge of each process's area. */
export function stack(curves: Values[]): Values[] {
  const nBins = Math.max(0, ...curves.map((values) => values.length));
  const heights = new Float64Array(nBins);
  return curves.map((values) => {
    for (let bin = 0; bin < nBins; bin++) heights[bin]! += values[bin] ?? 0;
    return Array.from(heights);
  });
}

export function Charts({ data }: { data: Data }) {
  const { layout } = settings.value;
  const { lives } = data;
  const limit = commonLimit(data);
  const moment = data.head.peak_heading ?? 'at the peak';
  const summary = `Memory of ${data.head.processes.length} processes over time: ${bytes(data.head.peak_bytes)} on the heap, ${moment}`;
  const inside =
    layout === 'stacked' ? (
      <Stacked data={data} limit={limit} />
    ) : (
      <div class="charts">
        {data.head.processes.map((_, process) => (
          <Single key={process} data={data} process={process} limit={limit} />
        ))}
      </div>
    );
  return (
    <section
      id="time"
      role="group"
      tabIndex={0}
      aria-label={`${summary}. Drag, or use arrow keys, to set two marks`}
      onKeyDown={(event) => {
        if (!lives || !intervalKey(lives, event)) return;
        event.preventDefault();
        event.stopPropagation();
      }}
    >
      {inside}
    </section>
  );
}

/** Creates a chart that shows the marks, and recreates it when `depends` changes. */
function useChart(data: Data, make: (width: number) => [uPlot.Options, uPlot.AlignedData], depends: unknown[]) {
  const box = useRef<HTMLDivElement>(null);
  const chart = useRef<uPlot | undefined>(undefined);
  const { from, to } = settings.value;
  useLayoutEffect(() => {
    const [options, values] = make(box.current!.clientWidth);
    const made = attach(box.current!, selectable(options, data.lives), values);
    chart.current = made.chart;
    return made.stop;
  }, depends);
  useLayoutEffect(() => {
    if (chart.current && data.lives) showInterval(chart.current, data.lives);
  }, [from, to]);
  return box;
}

function Stacked({ data, limit }: { data: Data; limit: number | null }) {
  const { curve, process } = settings.value;
  const dark = isDark.value;
  const box = useChart(
    data,
    (width) => {
      const colour = styleColours();
      // Stack values of one moment: the maxima of a bin may be from different moments, and their sum never existed.
      const stacked = process < 0 && curve === 'heap' ? data.timeline.stacked : undefined;
      const all = data.timeline.processes.map((known, at) => ({ at, values: stacked?.[at] ?? known[curve] }));
      const chosen = all.filter(({ at }) => process < 0 || process === at);
      const tops = stack(chosen.map(({ values }) => values));
      const shownLimit = limit !== null && limit < highestOf(...tops) * 4 ? limit : null;
      const range = { seconds: seconds(data).at(-1) ?? 0, bytes: Math.max(highestOf(...tops), shownLimit ?? 0) };
      // The highest area first, so that lower areas are drawn over it.
      const order = chosen.map((one, index) => ({ ...one, top: tops[index]! })).reverse();
      const options = plotOptions(
        colour,
        { width, height: STACKED_HEIGHT },
        range,
        order.map(({ at, values }) => ({
          label: shownName(data.head.processes[at]),
          stroke: colour('--surface'),
          width: 0.75,
          fill: processColour(at, dark),
          paths: steps,
          value: (_: uPlot, __: number | null, ___: number, bin: number | null) => {
            const raw = bin === null ? null : values[bin];
            return raw === null || raw === undefined ? '' : bytes(raw);
          },
        })),
      );
      const draw = (chart: uPlot) => drawLimit(chart, shownLimit, colour);
      const legend = { live: true, show: order.length <= 8 };
      return [{ ...options, legend, hooks: { draw: [draw] } }, [seconds(data), ...order.map(({ top }) => top)] as uPlot.AlignedData];
    },
    [data, curve, process, dark],
  );
  return <div class={`timeline ${data.lives ? 'selectable' : ''}`} ref={box} />;
}

function Single({ data, process, limit }: { data: Data; process: number; limit: number | null }) {
  const dark = isDark.value;
  const known = data.head.processes[process]!;
  const box = useChart(
    data,
    (width) => {
      const colour = styleColours();
      // One scale for all charts, so that heights are comparable.
      const all = data.timeline.processes.flatMap((curves) => [curves.heap, curves.resident]);
      const highest = highestOf(...all);
      const own = known.limit_bytes ?? limit;
      const shownLimit = own !== null && own < highest * 4 ? own : null;
      const { heap, resident } = data.timeline.processes[process]!;
      const range = { seconds: seconds(data).at(-1) ?? 0, bytes: Math.max(highest, shownLimit ?? 0) };
      const options = plotOptions(colour, { width, height: SMALL_HEIGHT }, range, [
        { label: 'resident', stroke: colour('--resident'), fill: colour('--resident-fill'), width: 1.25 },
        { label: 'heap', stroke: colour('--accent'), fill: processColour(process, dark), width: 1.5, paths: steps },
      ]);
      const draw = (chart: uPlot) => drawLimit(chart, shownLimit, colour);
      return [{ ...options, hooks: { draw: [draw] } }, [seconds(data), resident, heap] as uPlot.AlignedData];
    },
    [data, dark],
  );
  return (
    <figure>
      <figcaption>
        <b>{shownName(known)}</b> {known.command_line} <span>{`own peak ${bytes(known.peak_bytes)} after ${duration(known.peak_ns)}`}</span>
      </figcaption>
      <div class={`timeline ${data.lives ? 'selectable' : ''}`} ref={box} />
    </figure>
  );
}

function drawLimit(chart: uPlot, limit: number | null, colour: Colour): void {
  if (limit === null) return;
  const { ctx, bbox } = chart;
  const density = uPlot.pxRatio;
  ctx.save();
  ctx.font = `${11 * density}px ${FONT}`;
  const at = Math.round(chart.valToPos(limit, 'y', true));
  ctx.lineWidth = density;
  ctx.strokeStyle = ctx.fillStyle = colour('--warn');
  ctx.setLineDash([6 * density, 4 * density]);
  ctx.beginPath();
  ctx.moveTo(bbox.left, at);
  ctx.lineTo(bbox.left + bbox.width, at);
  ctx.stroke();
  ctx.textAlign = 'left';
  ctx.textBaseline = 'bottom';
  ctx.fillText(`limit ${bytes(limit)}`, bbox.left + 6 * density, at - 2 * density);
  ctx.restore();
}
