/** What of a chosen interval is shown, and how to leave it. */
import { clearInterval } from '../chart/interval.ts';
import type { Data } from '../model/data.ts';
import { duration } from '../model/format.ts';
import type { Kind } from '../model/intervals.ts';
import { change, settings } from '../state.ts';
import { Choice, KINDS } from './Choice.tsx';

export function intervalText({ lives }: Data): string {
  const { from, to } = settings.value;
  return `${duration(lives!.edges[from]!)} – ${duration(lives!.edges[to]!)}`;
}

const TEXTS: Record<Kind, readonly [string, string]> = {
  kept: ['Kept', 'Allocated in the interval and still alive at its end (m)'],
  allocated: ['Allocated', 'All that was allocated in the interval (m)'],
  growth: ['Growth', 'What was alive at its end, compared with its beginning (m)'],
};

export function IntervalChoice({ data, kinds = KINDS }: { data: Data; kinds?: readonly Kind[] }) {
  return (
    <>
      <Choice
        label="Which blocks of the interval"
        value={settings.value.kind}
        options={kinds.map((kind) => [kind, ...TEXTS[kind]] as const)}
        onChange={(kind) => change({ kind })}
      />
      <button type="button" class="plain" id="interval" title="Leave the interval: show the whole run (x)" onClick={clearInterval}>
        {intervalText(data)} ✕
      </button>
    </>
  );
}
