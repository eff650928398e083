/** Timeline: one track per process, with its runs as spans. */
import { bytes, plural } from '../model/format.ts';
import { change, settings } from '../state.ts';
import { clock } from './Detail.tsx';
import { type JobsData, time } from './data.ts';

const LANE_HEIGHT = 16;

export function Workers({ data }: { data: JobsData }) {
  const { head, spans } = data;
  const length = Math.max(head.to - head.from, 1e-3);
  const byWorker = data.workers.map((): number[] => []);
  spans.worker.forEach((worker, at) => byWorker[worker]!.push(at));
  return (
    <section class="workers" aria-label="Timeline of all processes">
      <h2>
        Timeline <small>{plural(data.workers.length, 'process', 'processes')}</small>
      </h2>
      <ul class="legend">
        {data.outcomes.map((outcome, number) => spans.outcome.includes(number) && (
          <li key={outcome}>
            <i class={outcome} /> {outcome}
          </li>
        ))}
      </ul>
      {data.workers.map((worker, number) => (
        <div class="worker" key={number}>
          <div class="label" title={`${worker.name} on ${worker.host}${worker.run && `, run ${worker.run}`}`}>
            <b>{worker.name}</b> {worker.host}
            {worker.left_out > 0 && <small> {plural(worker.left_out, 'short run')} not shown</small>}
          </div>
          <div class="track" style={{ height: `${Math.max(1, worker.lanes) * LANE_HEIGHT}px` }}>
            {byWorker[number]!.map((at) => (
              <Span key={at} data={data} at={at} length={length} />
            ))}
          </div>
        </div>
      ))}
      <div class="axis" aria-hidden="true">
        <span>{clock(head.from)}</span>
        <span>{clock(head.to) === clock(head.from) ? `+${time(head.to - head.from)}` : clock(head.to)}</span>
      </div>
    </section>
  );
}

function Span({ data, at, length }: { data: JobsData; at: number; length: number }) {
  const { spans, rows, outcomes } = data;
  const row = rows[spans.row[at]!]!;
  const { jobName: job, object } = settings.value;
  const outcome = outcomes[spans.outcome[at]!]!;
  const peak = spans.peak[at] === null ? '' : `, peak ${bytes(spans.peak[at]!)}`;
  const lasted = time(spans.to[at]! - spans.from[at]!);
  const isFaint = job !== '' && job !== row.title;
  return (
    <button
      type="button"
      class={`span ${outcome}${isFaint ? ' faint' : ''}`}
      aria-pressed={object === String(at)}
      title={`${row.title}${spans.key[at] === null ? '' : ` ${spans.key[at]}`}: ${outcome}, ${lasted}${peak}`}
      style={{
        // The last runs of a long timeline stay visible.
        left: `min(${(100 * spans.from[at]!) / length}%, calc(100% - 2px))`,
        width: `${(100 * (spans.to[at]! - spans.from[at]!)) / length}%`,
        top: `${spans.lane[at]! * LANE_HEIGHT}px`,
      }}
      onClick={() => change({ jobName: row.title, object: object === String(at) ? '' : String(at) })}
    />
  );
}
