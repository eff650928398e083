/** When each job ran, on the time axis of the charts: one row per name, one bar per job. A click filters by the name. */
import type { Data, JobSpan } from '../model/data.ts';
import { duration, plural } from '../model/format.ts';
import { change, isDark, settings } from '../state.ts';
import { processColour } from './Charts.tsx';

const MAX_ROWS = 40;

/** Returns the spans by name, the names with the longest total time first. */
export function rowsOf({ head }: Data, process: number): { job: number; spans: JobSpan[] }[] {
  const rows = new Map<number, JobSpan[]>();
  for (const span of head.job_spans ?? []) {
    if (process >= 0 && span.process !== process) continue;
    const known = rows.get(span.job);
    if (known) known.push(span);
    else rows.set(span.job, [span]);
  }
  const time = (spans: JobSpan[]) => spans.reduce((sum, { start_ns, end_ns }) => sum + end_ns - start_ns, 0);
  return [...rows].map(([job, spans]) => ({ job, spans })).sort((one, other) => time(other.spans) - time(one.spans) || one.job - other.job);
}

export function Jobs({ data }: { data: Data }) {
  const { process, job } = settings.value;
  const dark = isDark.value;
  const rows = rowsOf(data, process);
  if (rows.length === 0) return null;
  const names = data.head.jobs ?? [];
  const whole = Math.max(data.head.duration_ns, 1);
  const nMore = (data.head.num_more_jobs ?? 0) + rows.slice(MAX_ROWS).reduce((sum, { spans }) => sum + spans.length, 0);
  return (
    <section class="jobs" aria-label="Jobs">
      {rows.slice(0, MAX_ROWS).map((row) => (
        <div key={row.job} class="job-row">
          <button type="button" aria-pressed={job === row.job} title="Show this job alone" onClick={() => change({ job: job === row.job ? -1 : row.job, zoom: [] })}>
            {names[row.job]}
          </button>
          <svg class="job-spans" viewBox="0 0 1000 10" preserveAspectRatio="none" role="img" aria-label={plural(row.spans.length, 'job')}>
            {row.spans.map((span, at) => (
              <rect
                key={at}
                x={(span.start_ns / whole) * 1000}
                width={Math.max(((span.end_ns - span.start_ns) / whole) * 1000, 0.5)}
                y={1}
                height={8}
                fill={processColour(span.process, dark)}
                class={span.outcome === 'failed' || span.outcome === 'killed' ? 'failed' : ''}
              >
                <title>{`${names[span.job]}${span.key === null ? '' : `[${span.key}]`}: ${span.outcome}, ${duration(span.end_ns - span.start_ns)} from ${duration(span.start_ns)}`}</title>
              </rect>
            ))}
          </svg>
        </div>
      ))}
      {nMore > 0 && <p class="hint">{`and ${plural(nMore, 'shorter job')}`}</p>}
    </section>
  );
}
