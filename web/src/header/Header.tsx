/** Header of a page: the program, the recording mode, totals and warnings. */
import type { Data } from '../model/data.ts';
import { bytes, duration, plural, whole } from '../model/format.ts';
import { change, isDark } from '../state.ts';

export function Header({ data, what, onHelp }: { data: Data; what: string; onHelp: () => void }) {
  const { head } = data;
  const first = head.processes[0];
  const sum = (number: (process: (typeof head.processes)[0]) => number) =>
    head.processes.reduce((all, process) => all + number(process), 0);
  const resident = Math.max(0, ...head.processes.map((process) => process.resident_peak_bytes ?? 0));
  const limit = head.processes.find((process) => process.limit_bytes !== null)?.limit_bytes;
  const isMany = head.processes.length > 1;
  const figures: [string, string, string][] = [
    ['peak', bytes(head.peak_bytes), `${whole(head.peak_bytes)} bytes`],
    ['live at the end', bytes(sum((process) => process.live_bytes)), `${whole(sum((process) => process.live_bytes))} bytes`],
  ];
  // Some captures of other profilers lack totals.
  if (head.measures.includes('total')) {
    const total = sum((process) => process.total_bytes);
    figures.push(['total allocated', bytes(total), `${whole(total)} bytes`]);
    figures.push(['allocations', whole(sum((process) => process.num_allocations)), '']);
  }
  if (resident > 0 && !isMany) figures.push(['largest resident size', bytes(resident), `${whole(resident)} bytes`]);
  if (limit) figures.push(['memory limit', bytes(limit), `${whole(limit)} bytes`]);
  const modes = [...new Set(head.processes.map((process) => process.mode))];
  const facts = [
    isMany ? (head.peak_heading ?? plural(head.processes.length, 'process', 'processes')) : `process ${first?.name}`,
    `Python ${[...new Set(head.processes.map((process) => process.python))].join(', ')}`,
    [...new Set(head.processes.map((process) => process.host))].join(', '),
    `${head.start_time.slice(0, 19)} UTC`,
    duration(head.duration_ns),
    plural(head.threads.length, 'thread'),
    `${modes.join(' and ')} mode`,
  ].filter(Boolean);
  return (
    <header class="head">
      <Bar what={what} title={first?.command_line || 'a Python program'} onHelp={onHelp} />
      <div class="facts">
        <dl class="figures">
          {figures.map(([name, value, title]) => (
            <div key={name} title={title}>
              <dt>{name}</dt>
              <dd data-figure={name}>{value}</dd>
            </div>
          ))}
        </dl>
        <p class="about">{facts.join(' · ')}</p>
      </div>
      <Notes warnings={head.warnings} remarks={head.remarks} />
    </header>
  );
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
        <ul class="warnings" role="note">
          {warnings.map((text) => (
            <li key={text}>{text}</li>
          ))}
        </ul>
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
