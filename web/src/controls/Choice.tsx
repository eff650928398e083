/** Small controls shared by the pages. */
import type { Data, Measure } from '../model/data.ts';
import { clearInterval } from '../chart/interval.ts';
import type { IntervalView } from '../model/intervals.ts';
import { change, settings } from '../state.ts';
import { openFilter } from './Filter.tsx';
import { Group } from './Group.tsx';

/** A choice of one option, as a row of buttons. */
export function Choice<T extends string>(props: {
  label: string;
  value: T;
  options: readonly (readonly [T, string, string?])[];
  onChange: (value: T) => void;
}) {
  return (
    <Group className="choice" role="radiogroup" label={props.label}>
      {props.options.map(([value, text, title]) => (
        <button
          key={value}
          type="button"
          role="radio"
          aria-checked={value === props.value}
          title={title}
          onClick={() => props.onChange(value)}
        >
          {text}
        </button>
      ))}
    </Group>
  );
}

/** An on/off button. */
export function Toggle(props: { text: string; title: string; value: boolean; onChange: (value: boolean) => void }) {
  return (
    <button
      type="button"
      class="toggle"
      aria-pressed={props.value}
      title={props.title}
      onClick={() => props.onChange(!props.value)}
    >
      {props.text}
    </button>
  );
}

export const INTERVAL_VIEWS: readonly IntervalView[] = ['kept', 'allocated', 'growth'];
/** For tables, which cannot compare two times. */
export const TABLE_INTERVAL_VIEWS: readonly IntervalView[] = ['kept', 'allocated'];

const MEASURES: Record<Measure, readonly [string, string]> = {
  peak: ['At the peak', 'Blocks that were live at the peak of the heap (m)'],
  leaked: ['Leaked', 'Blocks that were live when the recording ended (m)'],
  total: ['Total', 'All allocations (m)'],
  temporary: ['Temporary', 'Blocks that were freed at once: they cost time, not memory (m)'],
};

export function MeasureChoice({ data }: { data: Data }) {
  return (
    <Choice
      label="Which blocks"
      value={settings.value.measure}
      options={data.head.measures.map((measure) => [measure, ...MEASURES[measure]] as const)}
      onChange={(measure) => change({ measure })}
    />
  );
}

export function UnitChoice() {
  return (
    <Choice
      label="Unit"
      value={settings.value.unit}
      options={[
        ['bytes', 'Bytes', 'Compare by bytes (b)'],
        ['count', 'Allocations', 'Compare by number of allocations (b)'],
      ]}
      onChange={(unit) => change({ unit })}
    />
  );
}

/** Handles the keys of all pages. Returns whether the key was one of them. */
export function commonKey(data: Data, key: string, help: () => void, theme: () => void, views: readonly IntervalView[] = INTERVAL_VIEWS): boolean {
  const { measure, unit, from, kind } = settings.value;
  const { measures } = data.head;
  switch (key) {
    case '?':
      help();
      return true;
    case 'd':
      theme();
      return true;
    case 'm':
      if (from >= 0) change({ kind: views[(views.indexOf(kind) + 1) % views.length]! });
      else change({ measure: measures[(measures.indexOf(measure) + 1) % measures.length]! });
      return true;
    case 'f':
      change({ findings: !settings.value.findings });
      return true;
    case 'x':
      clearInterval();
      return true;
    case 'r':
      document.getElementById('time')?.focus();
      return true;
    case 'b':
      change({ unit: unit === 'bytes' ? 'count' : 'bytes' });
      return true;
    case 't':
    case 'p':
    case 'j':
      openFilter(key === 't' ? 'thread' : key === 'p' ? 'process' : 'job');
      return true;
    case '/':
      document.querySelector<HTMLInputElement>('input[type=search]')?.focus();
      return true;
    default:
      return false;
  }
}

/** Returns whether a key belongs to the focused control. */
export function isTyping(event: KeyboardEvent): boolean {
  const target = event.target as HTMLElement | null;
  return event.ctrlKey || event.metaKey || event.altKey || ['INPUT', 'SELECT', 'TEXTAREA'].includes(target?.tagName ?? '');
}
