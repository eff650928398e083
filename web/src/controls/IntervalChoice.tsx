/** Choice of a measure for the selected interval, and a button to clear the selection. */
import { clearInterval } from '../chart/interval.ts';
import type { Data } from '../model/data.ts';
import { duration } from '../model/format.ts';
import type { IntervalView } from '../model/intervals.ts';
import { change, settings } from '../state.ts';
import { Choice, INTERVAL_VIEWS } from './Choice.tsx';

export function intervalText({ lives }: Data): string {
  const { from, to } = settings.value;
  return `${duration(lives!.edges[from]!)} – ${duration(lives!.edges[to]!)}`;
}

const TEXTS: Record<IntervalView, readonly [string, string]> = {
  kept: ['Kept', 'Allocated in the interval and live at its end (m)'],
  allocated: ['Allocated', 'All allocations of the interval (m)'],
  growth: ['Growth', 'Live memory at its end compared with its start (m)'],
};

export function IntervalChoice({ data, views = INTERVAL_VIEWS }: { data: Data; views?: readonly IntervalView[] }) {
  return (
    <>
      <Choice
        label="Which blocks of the interval"
        value={settings.value.kind}
        options={views.map((kind) => [kind, ...TEXTS[kind]] as const)}
        onChange={(kind) => change({ kind })}
      />
      <button type="button" class="plain" id="interval" title="Clear the interval and show the whole run (x)" onClick={clearInterval}>
        {intervalText(data)} ✕
      </button>
    </>
  );
}
