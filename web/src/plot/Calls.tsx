/** Calls of functions as bars below the chart, callers above callees, on the chart's time axis. */
import { duration } from '../model/format.ts';
import { isDark } from '../state.ts';
import { curveColour, shownPart } from './Chart.tsx';
import type { PlotData } from './data.ts';

/** Rows of deeper calls would fill the page. */
const MAX_LEVELS = 24;

export function Calls({ data }: { data: PlotData }) {
  const [from, to] = shownPart.value;
  const calls = data.calls.filter((call) => call.level < MAX_LEVELS && call.end >= from && call.begin <= to);
  if (data.calls.length === 0) return null;
  const depth = Math.max(0, ...calls.map((call) => call.level)) + 1;
  const share = (seconds: number) => Math.min(1, Math.max(0, (seconds - from) / (to - from))) * 100;
  const dark = isDark.value;
  return (
    <section class="calls" aria-label="Calls of functions" style={{ height: `${depth * 22}px` }}>
      {calls.map((call, at) => (
        <span
          key={at}
          title={`${call.function}: ${duration((call.end - call.begin) * 1e9)}`}
          style={{
            left: `${share(call.begin)}%`,
            width: `${Math.max(0.1, share(call.end) - share(call.begin))}%`,
            top: `${call.level * 22}px`,
            borderTopColor: curveColour(call.number + 1, dark),
          }}
        >
          {call.function}
        </span>
      ))}
    </section>
  );
}
