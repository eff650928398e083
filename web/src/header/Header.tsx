/** Header of a page: the program, the recording mode, totals and warnings. */
import { type Data, passing, programOf, shownName } from '../model/data.ts';
import { bytes, duration, plural, whole } from '../model/format.ts';
import { entryAmounts } from '../model/intervals.ts';
import { change, isDark, settings } from '../state.ts';
import { type Figure, Figures } from './Figures.tsx';

/** `isInterval`: the figures follow a selected interval. */
export function Header({ data, what, onHelp, isInterval }: { data: Data; what: string; onHelp: () => void; isInterval?: boolean }) {
  const { head } = data;
  const first = head.processes[0];
  const sum = (number: (process: (typeof head.processes)[0]) => number) =>
    head.processes.reduce((all, process) => all + number(process), 0);
  const resident = Math.max(0, ...head.processes.map((process) => process.resident_peak_bytes ?? 0));
  const limit = head.processes.find((process) => process.limit_bytes !== null)?.limit_bytes;
  const isMany = head.processes.length > 1;
  const wholeRun: Figure[] = [
    ['peak', bytes(head.peak_bytes), `${whole(head.peak_bytes)} bytes`],
    ['live at the end', bytes(sum((process) => process.live_bytes)), `${whole(sum((process) => process.live_bytes))} bytes`],
  ];
  // Some captures of other profilers lack totals.
  if (head.measures.includes('total')) {
    const total = sum((process) => process.total_bytes);
    wholeRun.push(['total allocated', bytes(total), `${whole(total)} bytes`]);
    wholeRun.push(['allocations', whole(sum((process) => process.num_allocations)), '']);
  }
  if (resident > 0 && !isMany) wholeRun.push(['largest resident size', bytes(resident), `${whole(resident)} bytes`]);
  if (limit) wholeRun.push(['memory limit', bytes(limit), `${whole(limit)} bytes`]);
  const { from, to, process, thread, job } = settings.value;
  const isPart = isInterval === true && data.lives !== undefined && from >= 0;
  const figures = isPart ? intervalFigures(data) : wholeRun;
  const scope = isPart ? `${duration(data.lives!.edges[from]!)} – ${duration(data.lives!.edges[to]!)}` : 'whole run';
  const isFiltered = isInterval && (isPart || process >= 0 || thread >= 0 || job >= 0);
  const hosts = [...new Set(head.processes.map((process) => process.host))].filter(Boolean);
  const modes = [...new Set(head.processes.map((process) => process.mode))];
  const facts = [
    isMany ? (head.peak_heading ?? plural(head.processes.length, 'process', 'processes')) : `process ${shownName(first)}`,
    `Python ${[...new Set(head.processes.map((process) => process.python))].join(', ')}`,
    hosts.length > 0 && `host ${hosts.join(', ')}`,
    `${head.start_time.slice(0, 19)} UTC`,
    duration(head.duration_ns),
    plural(head.threads.length, 'thread'),
    `mode: ${modes.join(' and ')}`,
  ].filter(Boolean);
  return (
    <header class="head">
      <Bar what={what} title={programOf(data)} onHelp={onHelp} />
      <div class="facts">
        <Figures figures={isFiltered ? [['figures of', scope, ''], ...figures] : figures} />
        <p class="about">{facts.join(' · ')}</p>
      </div>
      <Notes warnings={head.warnings} remarks={head.remarks} />
    </header>
  );
}

/** Returns the figures of the selected interval, within the selected process, thread and job. */
function intervalFigures(data: Data): Figure[] {
  const { from, to } = settings.value;
  const passes = passing(data, settings.value);
  const sum = (kind: 'kept' | 'allocated', unit: 'bytes' | 'count') => {
    const values = entryAmounts(data, { ...settings.value, kind })[unit];
    return values.reduce((all, value, entry) => (passes[data.own.origin[entry]!] ? all + value : all), 0);
  };
  const exact = (name: string, value: number): Figure => [name, bytes(value), `${whole(value)} bytes`];
  const { edges } = data.lives!;
  const curve = (data.timeline.processes[settings.value.process] ?? data.timeline.together).heap;
  const bin = (edge: number) => Math.floor(edges[edge]! / data.timeline.bin_ns);
  const heights = curve.slice(bin(from), bin(to) + 1).map((value) => value ?? 0);
  return [
    exact('highest heap', Math.max(0, ...heights)),
    exact('allocated and kept', sum('kept', 'bytes')),
    exact('total allocated', sum('allocated', 'bytes')),
    ['allocations', whole(sum('allocated', 'count')), ''],
  ];
}

/** The title bar of every page. */
export function Bar({ what, title, onHelp }: { what: string; title: string; onHelp: () => void }) {
  return (
    <div class="bar">
      <span class="brand">
        <svg viewBox="0 0 16 16" width="18" height="18" aria-hidden="true">
          <path d="M1 12q3.500-4 7 0t7 0v3H1zM1 7q3.500-4 7 0t7 0v3q-3.500 4-7 0T1 10z" />
        </svg>
        heaptide <em>{what}</em>
      </span>
      <h1 title={title}>{title}</h1>
      <button
        type="button"
        class="quiet"
        title="Switch between light and dark (d)"
        aria-label={isDark.value ? 'Use light colours' : 'Use dark colours'}
        onClick={toggleTheme}
      >
        {isDark.value ? '☀' : '☾'}
      </button>
      <button type="button" class="quiet" title="Keys (?)" aria-label="Show all keys" onClick={onHelp}>
        ?
      </button>
    </div>
  );
}

/** Warnings, which change numbers, and remarks, which are folded away because they need no action. */
export function Notes({ warnings, remarks }: { warnings: string[]; remarks: string[] }) {
  return (
    <>
      {warnings.length > 0 && (
        <div class="warnings" role="note">
          <ul>
            {warnings.map((text) => (
              <li key={text}>{text}</li>
            ))}
          </ul>
        </div>
      )}
      {remarks.length > 0 && (
        <details class="remarks">
          <summary>{plural(remarks.length, 'remark')}</summary>
          <ul>
            {remarks.map((text) => (
              <li key={text}>{text}</li>
            ))}
          </ul>
        </details>
      )}
    </>
  );
}

export function toggleTheme(): void {
  const wanted = isDark.value ? 'light' : 'dark';
  // If the wanted theme is the system's, follow the system again.
  const system = matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light';
  change({ theme: wanted === system ? 'auto' : wanted });
}
