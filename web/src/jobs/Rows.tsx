/** Table of all jobs. */
import { useMemo } from 'preact/hooks';
import { bytes, signed, whole } from '../model/format.ts';
import { expression } from '../model/search.ts';
import { change, settings } from '../state.ts';
import { type ColumnOf, VirtualTable } from '../table/VirtualTable.tsx';
import { confidence, type JobsData, limit, type Row, time } from './data.ts';

type Value = (row: Row) => number | string;

/** Best first, so that sorting in descending order shows leaking jobs first. */
const VERDICTS = ['clean', 'unknown', 'warms up', 'leaks'];

const VALUES: Record<string, Value> = {
  name: (row) => row.title,
  runs: (row) => row.runs,
  failed: (row) => row.failed,
  killed: (row) => row.killed,
  seconds: (row) => row.seconds_p50 ?? -1,
  p50: (row) => row.peak_p50 ?? -1,
  p95: (row) => row.peak_p95 ?? -1,
  peak: (row) => row.peak_max ?? -1,
  left: (row) => row.retained_per_run ?? -Infinity,
  verdict: (row) => VERDICTS.indexOf(row.verdict),
  limit: (row) => row.suggested_limit_bytes ?? -1,
};

export function sortedRows(rows: Row[], order: string, search: string): Row[] {
  const wanted = search === '' ? undefined : expression(search);
  const value = VALUES[order.replace('-', '')] ?? VALUES.peak!;
  const sign = order.startsWith('-') ? -1 : 1;
  return rows
    .filter((row) => !wanted || wanted.test(row.title))
    .sort((a, b) => {
      const [x, y] = [value(a), value(b)];
      const order = typeof x === 'string' ? x.localeCompare(String(y)) : x === y ? 0 : x < (y as number) ? -1 : 1;
      return sign * order || a.title.localeCompare(b.title);
    });
}

const size = (value: number | null) => (value === null ? '–' : bytes(value));
const isResident = (what: string | null) => what === 'resident size';
const star = (isMarked: boolean) => (isMarked ? '*' : '');

export function verdictText(row: Row): string {
  const isCertain = row.verdict === 'leaks' && row.confidence !== null;
  return isCertain ? `leaks (${confidence(row.confidence!)})` : row.verdict;
}

function number(id: string, text: string, title: string, cell: (row: Row) => string): ColumnOf<Row> {
  return { id, text, title, cell: (row) => <td class={`number ${id}`}>{cell(row)}</td> };
}

const COLUMNS: readonly ColumnOf<Row>[] = [
  {
    id: 'name',
    text: 'Job',
    title: 'Name of the job',
    isText: true,
    cell: (row) => (
      <td class="name" title={row.title}>
        <button type="button" class="open" aria-pressed={settings.value.jobName === row.title} onClick={(event) => (event.stopPropagation(), choose(row))}>
          {row.title}
        </button>
      </td>
    ),
  },
  number('runs', 'Runs', 'Runs that began', (row) => whole(row.runs)),
  number('failed', 'Failed', 'Runs that ended with an error', (row) => whole(row.failed)),
  number('killed', 'Killed', 'Runs whose process died', (row) => whole(row.killed)),
  number('seconds', 'Time', 'Median duration', (row) => (row.seconds_p50 === null ? '–' : time(row.seconds_p50))),
  number('p50', 'Peak p50', 'Median of the peaks of all runs', (row) => size(row.peak_p50) + star(isResident(row.peak_of))),
  number('p95', 'Peak p95', '95% of the runs had no higher peak', (row) => size(row.peak_p95) + star(isResident(row.peak_of))),
  number('peak', 'Peak max', 'Highest peak of a run', (row) => size(row.peak_max) + star(isResident(row.peak_of))),
  number('left', 'Left per run', 'Memory that a run leaves', (row) =>
    row.retained_per_run === null ? '–' : signed(row.retained_per_run, 'bytes') + star(isResident(row.retained_of)),
  ),
  {
    id: 'verdict',
    text: 'Verdict',
    title: 'Whether the job leaks',
    cell: (row) => <td class={`verdict ${row.verdict.replace(' ', '-')}`}>{verdictText(row)}</td>,
  },
  number('limit', 'Limit', 'Suggested memory limit of a process', (row) => (row.suggested_limit_bytes === null ? '–' : limit(row.suggested_limit_bytes))),
];

export function choose(row: Row): void {
  change({ jobName: settings.value.jobName === row.title ? '' : row.title, object: '' });
}

export function Rows({ data }: { data: JobsData }) {
  const { sort, search } = settings.value;
  const rows = useMemo(() => sortedRows(data.rows, sort, search), [data, sort, search]);
  return <VirtualTable rows={rows} columns={COLUMNS} label="Jobs" onChoose={choose} />;
}
