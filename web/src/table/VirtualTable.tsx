/** A table of any length that renders only visible rows. */
import { useSignal } from '@preact/signals';
import type { VNode } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import { bytes, percent, plural, whole } from '../model/format.ts';
import { change, isPrinting, settings } from '../state.ts';

const ROW_HEIGHT = 30;
/** Rows rendered before and after the visible ones. */
const N_BEYOND = 8;
const MAX_PRINTED = 500;

export interface ColumnOf<Row> {
  id: string;
  text: string;
  title: string;
  /** Texts are sorted from A to Z first, numbers from the largest down. */
  isText?: boolean;
  /** Renders the whole `td`. */
  cell: (row: Row) => VNode;
}

/** Sorts by a column; a second call reverses the order. */
export function sortBy(column: { id: string; isText?: boolean }): void {
  const first = column.isText ? column.id : `-${column.id}`;
  const second = column.isText ? `-${column.id}` : column.id;
  change({ sort: settings.value.sort === first ? second : first });
}

export function VirtualTable<Row>(props: {
  rows: Row[];
  columns: readonly ColumnOf<Row>[];
  label: string;
  onChoose?: (row: Row) => void;
  isChosen?: (row: Row) => boolean;
}) {
  const { rows, columns, onChoose, isChosen } = props;
  /** The row that keys have reached; −1 before the first key. */
  const current = useSignal(-1);
  const box = useRef<HTMLDivElement>(null);
  const scroll = useSignal(0);
  const height = useSignal(600);
  const { sort } = settings.value;
  useEffect(() => {
    const resized = new ResizeObserver(() => (height.value = box.current?.clientHeight ?? height.value));
    resized.observe(box.current!);
    return () => resized.disconnect();
  }, []);
  useEffect(() => {
    box.current!.scrollTop = 0;
    current.value = -1;
  }, [rows]);
  const onKey = (event: KeyboardEvent) => {
    if (!onChoose || event.target !== box.current || event.ctrlKey || event.metaKey || event.altKey) return;
    const step = event.key === 'ArrowDown' ? 1 : event.key === 'ArrowUp' ? -1 : 0;
    if (step !== 0) {
      current.value = Math.min(rows.length - 1, Math.max(0, current.value + step));
      // The head covers one row.
      const top = current.value * ROW_HEIGHT;
      const { scrollTop, clientHeight } = box.current!;
      box.current!.scrollTop = Math.max(Math.min(scrollTop, top), top + 2 * ROW_HEIGHT - clientHeight + ROW_HEIGHT / 2);
    } else if (event.key === 'Enter' && rows[current.value]) {
      onChoose(rows[current.value]!);
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  };
  const isPaper = isPrinting.value;
  const first = isPaper ? 0 : Math.max(0, Math.floor(scroll.value / ROW_HEIGHT) - N_BEYOND);
  const end = isPaper ? MAX_PRINTED : Math.ceil((scroll.value + height.value) / ROW_HEIGHT) + N_BEYOND;
  const last = Math.min(rows.length, end);
  const order = (id: string) => (sort === id ? 'ascending' : sort === `-${id}` ? 'descending' : 'none');
  return (
    <div
      class="rows"
      ref={box}
      tabIndex={0}
      role="region"
      aria-label={props.label}
      onKeyDown={onKey}
      onScroll={(event) => (scroll.value = event.currentTarget.scrollTop)}
    >
      <table aria-rowcount={rows.length + 1}>
        <thead>
          <tr aria-rowindex={1}>
            {columns.map((column) => (
              <th key={column.id} class={column.id} scope="col" aria-sort={order(column.id)}>
                <button type="button" title={column.title} onClick={() => sortBy(column)}>
                  {column.text}
                  <span aria-hidden="true">
                    {order(column.id) === 'ascending' ? ' ↑' : order(column.id) === 'descending' ? ' ↓' : ''}
                  </span>
                </button>
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {first > 0 && <tr style={{ height: `${first * ROW_HEIGHT}px` }} aria-hidden="true" />}
          {rows.slice(first, last).map((row, at) => (
            <tr
              key={first + at}
              aria-rowindex={first + at + 2}
              class={onChoose ? (first + at === current.value ? 'link current' : 'link') : undefined}
              aria-current={isChosen?.(row) ? 'true' : undefined}
              onClick={onChoose && (() => onChoose(row))}
            >
              {columns.map((column) => column.cell(row))}
            </tr>
          ))}
          {last < rows.length && !isPaper && <tr style={{ height: `${(rows.length - last) * ROW_HEIGHT}px` }} aria-hidden="true" />}
        </tbody>
      </table>
      {isPaper && last < rows.length && <p>{plural(rows.length - last, 'more row')} not printed</p>}
      {rows.length === 0 && <p class="nothing">No row matches.</p>}
    </div>
  );
}

/** A size with its share of the total, and a bar below it. */
export function SizeCell({ value, all, className }: { value: number; all: number; className: string }) {
  const share = all > 0 ? value / all : 0;
  return (
    <td class={className} title={`${whole(value)} bytes`}>
      <span class="size">{bytes(value)}</span>
      <span class="share">{percent(value, all)}</span>
      <i class="measure" style={{ width: `${(share * 100).toFixed(2)}%` }} aria-hidden="true" />
    </td>
  );
}
