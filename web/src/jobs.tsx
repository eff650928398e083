/** The page of `heaptide jobs --html`. */
import type { Keys } from './controls/Help.tsx';
import { SearchField } from './controls/SearchField.tsx';
import { Shell, showPage } from './controls/Shell.tsx';
import { Bar, Notes, toggleTheme } from './header/Header.tsx';
import { Detail, clock } from './jobs/Detail.tsx';
import { type JobsData } from './jobs/data.ts';
import { Rows, sortedRows } from './jobs/Rows.tsx';
import { Workers } from './jobs/Workers.tsx';
import { readEmbedded } from './model/embedded.ts';
import { bytes, duration, plural, whole } from './model/format.ts';
import { NO_RECORDING, change, settings, startState } from './state.ts';
import './style.css';
import './table/table.css';
import './jobs/jobs.css';

const KEYS: Keys = [
  ['j  k', 'select the next or the previous job'],
  ['Tab  Enter', 'go to the next job or run, and select it'],
  ['Escape', 'clear the selection'],
  ['/', 'search jobs; Enter selects the first, Escape leaves the field'],
  ['d', 'switch between light and dark'],
  ['?', 'show this list'],
];

function Head({ data, onHelp }: { data: JobsData; onHelp: () => void }) {
  const { head, rows } = data;
  const sum = (number: (row: (typeof rows)[0]) => number) => rows.reduce((all, row) => all + number(row), 0);
  const figures: [string, string][] = [
    ['runs', whole(head.runs)],
    ['failed', whole(sum((row) => row.failed))],
    ['killed', whole(sum((row) => row.killed))],
    ['highest peak', bytes(Math.max(0, ...rows.map((row) => row.peak_max ?? 0)))],
    ['leaking jobs', whole(rows.filter((row) => row.verdict === 'leaks').length)],
  ];
  const facts = [
    plural(head.processes, 'process', 'processes'),
    head.hosts.length > 3 ? plural(head.hosts.length, 'host') : head.hosts.length > 0 && `host ${head.hosts.join(', ')}`,
    clock(head.from),
    duration((head.to - head.from) * 1e9),
  ];
  return (
    <header class="head">
      <Bar what="jobs" title={head.title} onHelp={onHelp} />
      <div class="facts">
        <dl class="figures">
          {figures.map(([name, value]) => (
            <div key={name}>
              <dt>{name}</dt>
              <dd data-figure={name}>{value}</dd>
            </div>
          ))}
        </dl>
        <p class="about">{facts.filter(Boolean).join(' · ')}</p>
      </div>
      <Notes warnings={head.warnings} remarks={[]} />
    </header>
  );
}

function Page({ data }: { data: JobsData }) {
  const chosen = data.rows.find((row) => row.title === settings.value.jobName);
  const hasStar = data.rows.some((row) => row.peak_of === 'resident size' || row.retained_of === 'resident size');
  const isSampled = data.rows.some((row) => (row.peak_max_error_bytes_95 ?? 0) > 0 || row.retained_of === 'sampled blocks');
  return (
    <Shell className="jobs-page" onlyKeys={KEYS} onKey={(key, help) => jobsKey(data, key, help)}>
      {(help) => (
        <>
          <Head data={data} onHelp={help} />
          <div class="controls">
            <SearchField placeholder="Search jobs: a regular expression" label="Search jobs by a regular expression" onEnter={() => step(data, 0)} />
          </div>
          <Rows data={data} />
          {isSampled && <p class="note">Estimates from sampled recordings. Select a job to see the errors (95%) of its peaks.</p>}
          {hasStar && <p class="note">* Resident size of the whole process. A recording or a JobTracer measures the job alone.</p>}
          {chosen && <Detail data={data} row={chosen} />}
          <Workers data={data} />
        </>
      )}
    </Shell>
  );
}

/** Selects the job `by` rows after the selected one, or the first of the table. */
function step(data: JobsData, by: number): void {
  const rows = sortedRows(data.rows, settings.value.sort, settings.value.search);
  const at = rows.findIndex((row) => row.title === settings.value.jobName);
  const next = by === 0 || at < 0 ? 0 : Math.min(rows.length - 1, Math.max(0, at + by));
  if (rows[next]) change({ jobName: rows[next].title, object: '' });
  if (by === 0) (document.activeElement as HTMLElement | null)?.blur();
}

function jobsKey(data: JobsData, key: string, help: () => void): boolean {
  switch (key) {
    case '?':
      help();
      return true;
    case 'd':
      toggleTheme();
      return true;
    case '/':
      document.querySelector<HTMLInputElement>('input[type=search]')?.focus();
      return true;
    case 'j':
      step(data, 1);
      return true;
    case 'k':
      step(data, -1);
      return true;
    case 'Escape':
      change({ jobName: '', object: '' });
      return true;
    default:
      return false;
  }
}

showPage(readEmbedded<JobsData>('heaptide jobs --html'), (data) => {
  startState(NO_RECORDING, { sort: '-peak' });
  return { title: `${data.head.title} · jobs`, page: <Page data={data} /> };
});
