/** Table of processes with their memory at both marks. A click shows one process alone. */
import { type Data, labelText, type Process, shownName } from '../model/data.ts';
import { bytes, duration, signed, whole } from '../model/format.ts';
import { change, isDark, settings } from '../state.ts';
import { processColour } from './Charts.tsx';
import { growthOfProcesses } from './growth.ts';

/** Whether the name of a process already has its whole command line. */
const isNamedBy = (known: Process) => shownName(known).includes(known.command_line);

export function Processes({ data }: { data: Data }) {
  const { process, from, to } = settings.value;
  const growth = growthOfProcesses(data, from, to);
  const hasMarks = data.lives !== undefined && from >= 0;
  const dark = isDark.value;
  const { head } = data;
  const hasMoment = head.processes.length > 1 && head.peak_ns !== null;
  return (
    <div class="processes" role="region" aria-label="Processes" tabIndex={0}>
      <table>
        <thead>
          <tr>
            <th scope="col">Process</th>
            <th scope="col" class="detail">
              Ran
            </th>
            {hasMoment && (
              <th scope="col" class="second">
                At the common peak
              </th>
            )}
            <th scope="col">{head.processes.length > 1 ? 'Own heap peak' : 'Heap peak'}</th>
            <th scope="col" class="second">
              Resident peak
            </th>
            {hasMarks && (
              <th scope="col" class="detail">
                First mark
              </th>
            )}
            {hasMarks && (
              <th scope="col" class="detail">
                Second mark
              </th>
            )}
            {hasMarks && <th scope="col">Growth</th>}
          </tr>
        </thead>
        <tbody>
          {head.processes.map((known, at) => {
            const { before, after } = growth[at]!;
            const grew = after - before;
            return (
              <tr key={at} class="link" aria-selected={process === at} onClick={() => change({ process: process === at ? -1 : at, thread: -1, zoom: [] })}>
                <td>
                  <button type="button" title="Show this process alone" aria-pressed={process === at}>
                    <i style={{ background: processColour(at, dark) }} /> <b>{shownName(known)}</b>
                  </button>{' '}
                  {isNamedBy(known) || <span title={known.command_line}>{known.command_line}</span>} {labelText(known) && <small>{labelText(known)}</small>}
                </td>
                <td class="detail">{`${duration(known.start_ns)} – ${duration(known.end_ns)}`}</td>
                {hasMoment && <td class="second" title={`${whole(known.at_peak_bytes)} bytes`}>{bytes(known.at_peak_bytes)}</td>}
                <td title={`${whole(known.peak_bytes)} bytes`}>{bytes(known.peak_bytes)}</td>
                <td class="second">{known.resident_peak_bytes === null ? '' : bytes(known.resident_peak_bytes)}</td>
                {hasMarks && <td class="detail" title={`${whole(before)} bytes`}>{bytes(before)}</td>}
                {hasMarks && <td class="detail" title={`${whole(after)} bytes`}>{bytes(after)}</td>}
                {hasMarks && (
                  <td data-growth={known.name} class={grew > 0 ? 'grown' : grew < 0 ? 'shrunk' : 'same'} title={`${signed(grew, 'count')} bytes`}>
                    <span class="size">{signed(grew, 'bytes')}</span>
                  </td>
                )}
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}
