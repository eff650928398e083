/** The columns of `heaptide table`. */
import { shortFile, whole } from '../model/format.ts';
import type { Row, Rows } from '../model/rows.ts';
import { type ColumnOf, SizeCell } from './VirtualTable.tsx';

/** `hasThreads`: several threads allocated; otherwise the thread column is left out. */
export function columns(all: Rows, hasThreads: boolean): ColumnOf<Row>[] {
  const columns: ColumnOf<Row>[] = [
    {
      id: 'own',
      text: 'Own',
      title: 'Bytes allocated by this code itself (1)',
      cell: (row) => <SizeCell value={row.ownBytes} all={all.allBytes} className="own" />,
    },
    {
      id: 'total',
      text: 'Total',
      title: 'Bytes allocated by this code and its callees (2)',
      cell: (row) => <SizeCell value={row.totalBytes} all={all.allBytes} className="total" />,
    },
    {
      id: 'allocations',
      text: 'Allocations',
      title: 'Blocks allocated by this code itself (3)',
      cell: (row) => <td class="allocations">{whole(row.ownCount)}</td>,
    },
    {
      id: 'name',
      text: 'Where',
      title: 'Function, file and line (4)',
      isText: true,
      cell: (row) => (
        <td class="name" title={[row.location, row.source].filter(Boolean).join('\n')}>
          <b>{row.name}</b> <span>{shortFile(row.location)}</span> {row.source && <code>{row.source}</code>}
        </td>
      ),
    },
    {
      id: 'thread',
      text: 'Thread',
      title: 'Thread that allocated (5)',
      isText: true,
      cell: (row) => <td class="thread">{row.thread}</td>,
    },
    {
      id: 'allocator',
      text: 'Allocator',
      title: 'Allocator function that was called (6)',
      isText: true,
      cell: (row) => (
        <td class="allocator" title={row.allocator.toLowerCase()}>
          {allocatorText(row.allocator)}
        </td>
      ),
    },
  ];
  return hasThreads ? columns : columns.filter(({ id }) => id !== 'thread');
}

/** Number of letters that fit the column. */
const ALLOCATOR_LETTERS = 16;

/** Returns the allocators of a row, or their number if their names are too long for the column. */
function allocatorText(allocators: string): string {
  const names = allocators.toLowerCase().split(', ');
  return names.length > 1 && allocators.length > ALLOCATOR_LETTERS ? `${names.length} allocators` : names.join(', ');
}
