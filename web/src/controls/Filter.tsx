/** A button that opens lists with a search field, to select a process, a thread and a job. */
import { signal } from '@preact/signals';
import { useEffect, useMemo, useRef } from 'preact/hooks';
import { type Data, passing, shownName, threadName } from '../model/data.ts';
import { amount, plural } from '../model/format.ts';
import { entryAmounts } from '../model/intervals.ts';
import { change, settings, shape } from '../state.ts';
import { Group } from './Group.tsx';

/** Further options are found by searching. */
const MAX_OPTIONS = 100;

export type FilterPart = 'process' | 'thread' | 'job';
const wasOpened = signal<FilterPart | undefined>(undefined);
const search = signal('');

/** Opens the lists; the keys `t`, `p` and `j` do. */
export function openFilter(part: FilterPart): void {
  wasOpened.value = part;
}

interface Option {
  value: number;
  text: string;
  /** The amount of the origins that pass the other parts of the filter. */
  size: number;
}

export function FilterChoice({ data }: { data: Data }) {
  const parts = partsOf(data);
  if (parts.length === 0) return null;
  const { process, thread, job } = settings.value;
  const chosen = { process, thread, job };
  const names = parts.filter((part) => chosen[part] >= 0).map((part) => nameOf(data, part, chosen[part]));
  const all = parts.map((part) => plural(countOf(data, part), part, part === 'process' ? 'processes' : `${part}s`));
  return (
    <span class="filter">
      <button
        type="button"
        class="plain"
        id="filter"
        title="Select a process, a thread or a job (p, t, j)"
        aria-expanded={wasOpened.value !== undefined}
        aria-pressed={names.length > 0}
        onClick={() => (wasOpened.value = wasOpened.value ? undefined : parts[0])}
      >
        {names.length > 0 ? names.join(' · ') : `All: ${all.join(', ')}`} ▾
      </button>
      {wasOpened.value && <Panel data={data} parts={parts} />}
    </span>
  );
}

function Panel({ data, parts }: { data: Data; parts: FilterPart[] }) {
  const box = useRef<HTMLDivElement>(null);
  const close = () => {
    wasOpened.value = undefined;
    search.value = '';
    document.getElementById('filter')?.focus();
  };
  useEffect(() => {
    box.current!.querySelector('input')!.focus();
    const onPress = (event: MouseEvent) => {
      const target = event.target as Element;
      if (!box.current?.contains(target) && !target.closest('#filter')) wasOpened.value = undefined;
    };
    document.addEventListener('mousedown', onPress);
    return () => document.removeEventListener('mousedown', onPress);
  }, []);
  const onKey = (event: KeyboardEvent) => {
    if (event.key === 'Escape') close();
    event.stopPropagation();
  };
  return (
    <div class="filter-panel" role="dialog" aria-label="Process, thread and job" ref={box} onKeyDown={onKey}>
      <input
        type="text"
        placeholder={`Search: ${parts.join(', ')}`}
        aria-label="Search the lists"
        spellcheck={false}
        value={search.value}
        onInput={(event) => (search.value = event.currentTarget.value)}
      />
      {parts.map((part) => (
        <List key={part} data={data} part={part} />
      ))}
    </div>
  );
}

const HEADINGS: Record<FilterPart, string> = { process: 'Process', thread: 'Thread', job: 'Job' };

function List({ data, part }: { data: Data; part: FilterPart }) {
  const now = settings.value;
  const options = useMemo(() => optionsOf(data, part), [data, shape.value, part]);
  const wanted = search.value.toLowerCase();
  const found = options.filter(({ text }) => text.toLowerCase().includes(wanted));
  const choose = (value: number) => change({ [part]: value, zoom: [], ...(part === 'process' && { thread: -1 }) });
  return (
    <section>
      <h3>{HEADINGS[part]}</h3>
      <Group className="options" role="radiogroup" label={HEADINGS[part]}>
        <button type="button" role="radio" aria-checked={now[part] < 0} onClick={() => choose(-1)}>
          {`all ${part === 'process' ? 'processes' : `${part}s`}`}
        </button>
        {found.slice(0, MAX_OPTIONS).map(({ value, text, size }) => (
          <button key={value} type="button" role="radio" aria-checked={now[part] === value} onClick={() => choose(value)}>
            <span>{text}</span> <small>{amount(size, now.unit)}</small>
          </button>
        ))}
      </Group>
      {found.length > MAX_OPTIONS && <p>{plural(found.length - MAX_OPTIONS, 'more', 'more')}: search to find them</p>}
    </section>
  );
}

/** Returns the parts that offer a choice: several processes or threads, or any job. */
function partsOf(data: Data): FilterPart[] {
  return (['process', 'thread', 'job'] as const).filter((part) => (part === 'job' ? (data.head.jobs ?? []).length > 0 : countOf(data, part) > 1));
}

function countOf(data: Data, part: FilterPart): number {
  if (part === 'process') return data.head.processes.length;
  return part === 'thread' ? new Set(data.origins.thread).size : (data.head.jobs ?? []).length;
}

function nameOf(data: Data, part: FilterPart, value: number): string {
  if (part === 'thread') return threadName(data, value);
  if (part === 'job') return data.head.jobs?.[value] === undefined ? 'outside of jobs' : `job ${data.head.jobs[value]}`;
  const known = data.head.processes[value];
  return known ? `${shownName(known)} · ${known.command_line.slice(0, 60)}` : '';
}

/** Returns the options with something to show, the largest first. */
function optionsOf(data: Data, part: FilterPart): Option[] {
  const passes = passing(data, { ...shape.value, [part]: -1, ...(part === 'process' && { thread: -1 }) });
  const { node, origin } = data.own;
  const values = entryAmounts(data, shape.value)[shape.value.unit];
  const sums = new Map<number, number>();
  for (let entry = 0; entry < node.length; entry++) {
    const from = origin[entry]!;
    if (!passes[from]) continue;
    const thread = data.origins.thread[from]!;
    const outside = data.head.jobs?.length ?? 0;
    const job = data.origins.job?.[from] ?? -1;
    const value = part === 'thread' ? thread : part === 'job' ? (job < 0 ? outside : job) : (data.head.threads[thread]?.process ?? 0);
    sums.set(value, (sums.get(value) ?? 0) + values[entry]!);
  }
  return [...sums].map(([value, size]) => ({ value, text: nameOf(data, part, value), size })).sort((one, other) => other.size - one.size);
}
