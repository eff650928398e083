/** A table of any length: only rows that can be seen exist. */
import { useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { bytes, percent, shortFile, whole } from '../model/format.ts';
import type { Column, Row, Rows } from '../model/rows.ts';
import { change, settings } from '../state.ts';

const ROW_HEIGHT = 30;
const N_BEYOND = 8;

const HEADINGS: readonly (readonly [Column, string, string])[] = [
  ['own', 'Own', 'Bytes allocated here itself (1)'],
  ['total', 'Total', 'Bytes allocated here and in what was called from here (2)'],
  ['allocations', 'Allocations', 'Blocks allocated here itself (3)'],
  ['name', 'Where', 'Function, file and line (4)'],
  ['thread', 'Thread', 'Thread that allocated (5)'],
  ['allocator', 'Allocator', 'Function of the allocator that was called (6)'],
];

/** Sorts by a column; once more, the other way round. */
export function sortBy(column: Column): void {
  const isText = column === 'name' || column === 'thread' || column === 'allocator';
  const first = isText ? column : `-${column}`;
  const second = isText ? `-${column}` : column;
  change({ sort: settings.value.sort === first ? second : first });
}

export function TableView({ rows, all }: { rows: Row[]; all: Rows }) {
  const box = useRef<HTMLDivElement>(null);
  const scroll = useSignal(0);
  const height = useSignal(600);
  const { sort } = settings.value;
  useEffect(() => {
    const resized = new ResizeObserver(() => (height.value = box.current!.clientHeight));
    resized.observe(box.current!);
    return () => resized.disconnect();
  }, []);
  useEffect(() => {
    box.current!.scrollTop = 0;
  }, [rows]);
  const first = Math.max(0, Math.floor(scroll.value / ROW_HEIGHT) - N_BEYOND);
  const last = Math.min(rows.length, Math.ceil((scroll.value + height.value) / ROW_HEIGHT) + N_BEYOND);
  const order = (column: Column) =>
    sort === column ? 'ascending' : sort === `-${column}` ? 'descending' : 'none';
  return (
    <div class="rows" ref={box} tabIndex={0} role="region" aria-label="Table of allocations" onScroll={(event) => (scroll.value = event.currentTarget.scrollTop)}>
      <table aria-rowcount={rows.length + 1}>
        <thead>
          <tr aria-rowindex={1}>
            {HEADINGS.map(([column, text, title]) => (
              <th key={column} class={column} scope="col" aria-sort={order(column)}>
                <button type="button" title={title} onClick={() => sortBy(column)}>
                  {text}
                  <span aria-hidden="true">{order(column) === 'ascending' ? ' ↑' : order(column) === 'descending' ? ' ↓' : ''}</span>
                </button>
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {first > 0 && <tr style={{ height: `${first * ROW_HEIGHT}px` }} aria-hidden="true" />}
          {rows.slice(first, last).map((row, at) => (
            <TableRow key={first + at} row={row} all={all} index={first + at + 2} />
          ))}
          {last < rows.length && <tr style={{ height: `${(rows.length - last) * ROW_HEIGHT}px` }} aria-hidden="true" />}
        </tbody>
      </table>
      {rows.length === 0 && <p class="nothing">No row matches.</p>}
    </div>
  );
}

function TableRow({ row, all, index }: { row: Row; all: Rows; index: number }) {
  return (
    <tr aria-rowindex={index}>
      <Size value={row.ownBytes} all={all.allBytes} kind="own" />
      <Size value={row.totalBytes} all={all.allBytes} kind="total" />
      <td class="allocations">{whole(row.ownCount)}</td>
      <td class="name" title={[row.place, row.source].filter(Boolean).join('\n')}>
        <b>{row.name}</b> <span>{shortFile(row.place)}</span> {row.source && <code>{row.source}</code>}
      </td>
      <td class="thread">{row.thread}</td>
      <td class="allocator" title={row.allocator}>
        {row.allocator.toLowerCase()}
      </td>
    </tr>
  );
}

function Size({ value, all, kind }: { value: number; all: number; kind: string }) {
  const share = all > 0 ? value / all : 0;
  return (
    <td class={kind} title={`${whole(value)} bytes`}>
      <span class="size">{bytes(value)}</span>
      <span class="share">{percent(value, all)}</span>
      <i class="measure" style={{ width: `${(share * 100).toFixed(2)}%` }} aria-hidden="true" />
    </td>
  );
}
