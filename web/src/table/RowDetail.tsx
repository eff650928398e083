/** The stacks and callers of a row, next to the table. */
import { useSignal } from '@preact/signals';
import { useMemo } from 'preact/hooks';
import { CopyText } from '../controls/CopyText.tsx';
import type { Data } from '../model/data.ts';
import { bytes, functionName, locationName, percent, plural, shortFile } from '../model/format.ts';
import { callersOf, type Row, type Rows, type RowSelection, type RowStack, stacksOfRow } from '../model/rows.ts';
import { stackText } from '../model/stack-text.ts';
import { change } from '../state.ts';

/** More stacks and callers than these are only counted. */
const MAX_STACKS = 10;
const MAX_CALLERS = 8;

export function RowDetail(props: { data: Data; row: Row; all: Rows; selection: RowSelection }) {
  const { data, row, all, selection } = props;
  const stacks = useMemo(() => stacksOfRow(data, selection, String(row.id)), [data, row.id, all]);
  const callers = callersOf(data, stacks);
  return (
    <aside class="findings row-detail" aria-label={`Stacks of ${row.name}`}>
      <h2>
        <span>{row.name}</span>
        <button type="button" class="close" title="Close (Escape)" aria-label="Close" onClick={() => change({ row: '' })}>
          ✕
        </button>
      </h2>
      <p class="place">{shortFile(row.location)}</p>
      {row.source && <code>{row.source}</code>}
      <h3>{plural(callers.length, 'caller')}</h3>
      <ul class="callers">
        {callers.slice(0, MAX_CALLERS).map(({ location, bytes: size }) => (
          <li key={location}>
            <b>{bytes(size)}</b> {location < 0 ? 'no caller' : <Frame data={data} location={location} />}
          </li>
        ))}
        {callers.length > MAX_CALLERS && <li>{plural(callers.length - MAX_CALLERS, 'more', 'more')}</li>}
      </ul>
      <h3>{plural(stacks.length, 'stack')}</h3>
      {stacks.slice(0, MAX_STACKS).map((stack, at) => (
        <Stack key={stack.node} data={data} stack={stack} all={all.allBytes} isOpen={at === 0} />
      ))}
      {stacks.length > MAX_STACKS && <p>{plural(stacks.length - MAX_STACKS, 'smaller stack')} not listed</p>}
    </aside>
  );
}

function Stack({ data, stack, all, isOpen }: { data: Data; stack: RowStack; all: number; isOpen: boolean }) {
  const frames: number[] = [];
  for (let node = stack.node; node !== 0; node = data.nodes.parent[node]!) frames.push(data.nodes.location[node]!);
  const open = useSignal(isOpen);
  return (
    <details open={open.value} onToggle={(event) => (open.value = event.currentTarget.open)}>
      <summary>
        <b>{bytes(stack.bytes)}</b> {percent(stack.bytes, all)} · {plural(stack.count, 'block')}
      </summary>
      <ol>
        {frames.map((location, at) => (
          <li key={at}>{location < 0 ? 'no Python frame' : <Frame data={data} location={location} />}</li>
        ))}
      </ol>
      <CopyText text={() => stackText(data, frames)} what="stack" />
    </details>
  );
}

function Frame({ data, location }: { data: Data; location: number }) {
  return (
    <>
      {functionName(data, location)} <span>{shortFile(locationName(data, location, true))}</span>
    </>
  );
}
