/** The selected job: distribution of its peaks and durations, verdict, site, and its flame graph. */
import { bytes, plural, signed, whole } from '../model/format.ts';
import { settings } from '../state.ts';
import { type Capture, confidence, estimate, type Histogram, type JobsData, limit, type Row, time } from './data.ts';

export function Detail({ data, row }: { data: JobsData; row: Row }) {
  const at = data.rows.indexOf(row);
  return (
    <section class="detail" aria-label={`Job ${row.title}`}>
      <h2>{row.title}</h2>
      <p>{outcomesText(row)}</p>
      <p class="finding">{finding(data, row)}</p>
      {row.site && (
        <p>
          Largest site: <code>{row.site}</code> {row.site_bytes !== null && `(${bytes(row.site_bytes)} ${row.site_of === 'peak' ? 'at the peaks of' : 'left by'} ${measured(row)})`}
        </p>
      )}
      <p>{measuresText(row)}</p>
      <div class="charts">
        {row.peaks && <Bars title={`Peaks: ${row.peak_of}`} histogram={row.peaks} show={bytes} />}
        {row.durations && <Bars title="Durations" histogram={row.durations} show={time} />}
      </div>
      <RunDetail data={data} />
      <FlameGraphs captures={capturesOf(data, at)} name={row.name} />
    </section>
  );
}

/** The runs whose sites are known. */
function measured(row: Row): string {
  const runs = row.site_runs ?? row.runs;
  return runs < row.runs ? `the ${plural(runs, 'measured run')}` : 'all runs';
}

function outcomesText(row: Row): string {
  const parts = (['ok', 'failed', 'killed', 'skipped', 'deferred', 'retried', 'running'] as const)
    .filter((name) => row[name] > 0)
    .map((name) => `${whole(row[name])} ${name}`);
  const where = `${plural(row.processes, 'process', 'processes')} on ${plural(row.hosts, 'host')}`;
  const error = row.error ? `; most frequent error: ${row.error}` : '';
  return `${plural(row.runs, 'run')} in ${where}: ${parts.join(', ')}${error}`;
}

/** The numbers whose columns a narrow window hides. */
function measuresText(row: Row): string {
  const peaks =
    row.peak_max === null
      ? []
      : [
          `peak ${estimate(row.peak_p50!, row.peak_p50_error_bytes_95)} (median)`,
          `${estimate(row.peak_p95!, row.peak_p95_error_bytes_95)} (95%)`,
          `${estimate(row.peak_max, row.peak_max_error_bytes_95)} (highest)`,
        ];
  const times = row.seconds_p50 === null ? [] : [`duration ${time(row.seconds_p50)} (median)`];
  return [peaks.join(', '), ...times].filter(Boolean).join(' · ');
}

function finding(data: JobsData, row: Row): string {
  const left = row.retained_per_run === null ? '' : signed(row.retained_per_run, 'bytes');
  const advice = row.suggested_limit_bytes === null ? '' : ` Suggested memory limit: ${limit(row.suggested_limit_bytes)}.`;
  switch (row.verdict) {
    case 'leaks':
      return `Each run leaves ${left} (${confidence(row.confidence ?? 0)} confidence, by ${row.retained_of}).${advice}`;
    case 'warms up':
      return `The first runs leave memory, later ones ${left} each.${advice}`;
    case 'clean':
      return `Runs leave no growing memory (by ${row.retained_of}).${advice}`;
    default:
      if (row.growth_is_shared) {
        return `Whether it leaks is unknown: its processes grow, and resident sizes cannot show whether this job or other code leaks. A recording can.${advice}`;
      }
      return `Whether it leaks is unknown: that takes ${data.head.min_runs} measured runs in one process.${advice}`;
  }
}

/** A bar chart of a distribution; the bars are described by their titles. */
function Bars({ title, histogram, show }: { title: string; histogram: Histogram; show: (value: number) => string }) {
  const { from, to, counts } = histogram;
  const most = Math.max(...counts);
  const step = (to - from) / counts.length;
  return (
    <figure>
      <figcaption>{title}</figcaption>
      <div class="bars" role="img" aria-label={`${title}: from ${show(from)} to ${show(to)}`}>
        {counts.map((count, at) => (
          <i
            key={at}
            title={`${show(from + at * step)} to ${show(from + (at + 1) * step)}: ${plural(count, 'run')}`}
            style={{ height: `${(100 * count) / most}%` }}
          />
        ))}
      </div>
      <div class="axis" aria-hidden="true">
        <span>{show(from)}</span>
        <span>{show(to)}</span>
      </div>
    </figure>
  );
}

/** The run that was selected in the timeline. */
function RunDetail({ data }: { data: JobsData }) {
  const at = Number(settings.value.object);
  const { spans } = data;
  if (settings.value.object === '' || !(at in spans.from)) return null;
  const worker = data.workers[spans.worker[at]!]!;
  const facts = [
    spans.key[at] !== null && `key ${spans.key[at]}`,
    data.outcomes[spans.outcome[at]!],
    `${clock(data.head.from + spans.from[at]!)} for ${time(spans.to[at]! - spans.from[at]!)}`,
    `process ${worker.name} on ${worker.host}`,
    spans.peak[at] !== null && `peak ${estimate(spans.peak[at]!, spans.peak_error[at]!)}`,
    spans.retained[at] !== null && `left ${signed(spans.retained[at]!, 'bytes')}`,
  ];
  return <p class="run">Selected run: {facts.filter(Boolean).join(' · ')}</p>;
}

export function clock(seconds: number): string {
  return `${new Date(seconds * 1000).toISOString().slice(0, 19).replace('T', ' ')} UTC`;
}

function capturesOf(data: JobsData, row: number): Capture[] {
  const { spans } = data;
  const chosen = settings.value.object === '' ? -1 : Number(settings.value.object);
  const numbers = chosen >= 0 ? [spans.capture[chosen] ?? -1] : spans.capture.filter((_, at) => spans.row[at] === row);
  return [...new Set(numbers)].filter((at) => at >= 0).map((at) => data.captures[at]!);
}

/** Links to flame graphs of the job, or the commands that make them. */
function FlameGraphs({ captures, name }: { captures: Capture[]; name: string }) {
  if (captures.length === 0) {
    return <p class="hint">No capture has this job. Record it to see a flame graph: heaptide run, HEAPTIDE=run or the control API.</p>;
  }
  const hash = new URLSearchParams({ jobName: name }).toString();
  return (
    <ul class="captures">
      {captures.slice(0, 20).map((capture) => (
        <li key={capture.path}>
          {capture.page !== null ? (
            <a href={`${capture.page}#${hash}`}>Flame graph of {capture.path}</a>
          ) : (
            <>
              Make the flame graph: <code>{capture.command.replace('JOB', quote(name))}</code>
            </>
          )}
        </li>
      ))}
    </ul>
  );
}

/** Quotes a word for a shell. */
function quote(word: string): string {
  return /^[\w./:@%+=-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}
