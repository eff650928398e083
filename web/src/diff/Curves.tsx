/** Chart of the heap of both sides over time, each from its start. */
import { useLayoutEffect, useRef } from 'preact/hooks';
import type uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';
import { attach, highestOf, plotOptions, steps, styleColours, type Values } from '../chart/plot.ts';
import type { Data } from '../model/data.ts';
import { bytes } from '../model/format.ts';
import { isDark } from '../state.ts';

const HEIGHT = 132;

/** Returns the sum of several curves, bin by bin; null where none has a value. */
export function sumOf(lists: Values[]): Values {
  const [first = []] = lists;
  return first.map((_, bin) => {
    const known = lists.map((list) => list[bin] ?? null).filter((value) => value !== null);
    return known.length === 0 ? null : known.reduce((sum, value) => sum + value, 0);
  });
}

export function Curves({ data }: { data: Data }) {
  const box = useRef<HTMLDivElement>(null);
  const dark = isDark.value;
  const { n_before, whole } = data.head.diff!;
  useLayoutEffect(() => {
    const { processes, bin_ns } = data.timeline;
    const heaps = processes.map((curves) => curves.heap);
    const before = sumOf(heaps.slice(0, n_before));
    const after = sumOf(heaps.slice(n_before));
    const seconds = (processes[0]?.heap ?? []).map((_, bin) => (bin * bin_ns) / 1e9);
    const colour = styleColours();
    const range = { seconds: seconds.at(-1) ?? 0, bytes: highestOf(before, after) };
    const options = plotOptions(colour, { width: box.current!.clientWidth, height: HEIGHT }, range, [
      { label: 'heap before', stroke: colour('--resident'), fill: colour('--resident-fill'), width: 1.75, paths: steps },
      { label: 'heap after', stroke: colour('--accent'), width: 1.75, paths: steps },
    ]);
    return attach(box.current!, options, [seconds, before, after] as uPlot.AlignedData).stop;
  }, [data, dark]);
  const summary = `Heap over time: the peak was ${bytes(whole.peak.before_bytes)} before and is ${bytes(whole.peak.after_bytes)} after`;
  return <div class="timeline" ref={box} role="img" aria-label={summary} />;
}
