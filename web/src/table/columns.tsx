/** The columns of `heaptide table`. */
import { shortFile, whole } from '../model/format.ts';
import type { Row, Rows } from '../model/rows.ts';
import { type ColumnOf, SizeCell } from './VirtualTable.tsx';

/** `hasThreads`: more than one allocated; else a column of the same name says nothing. */
export function columns(all: Rows, hasThreads: boolean): ColumnOf<Row>[] {
  const columns: ColumnOf<Row>[] = [
    {
      id: 'own',
      text: 'Own',
      title: 'Bytes allocated here itself (1)',
      cell: (row) => <SizeCell value={row.ownBytes} all={all.allBytes} kind="own" />,
    },
    {
      id: 'total',
      text: 'Total',
      title: 'Bytes allocated here and in what was called from here (2)',
      cell: (row) => <SizeCell value={row.totalBytes} all={all.allBytes} kind="total" />,
    },
    {
      id: 'allocations',
      text: 'Allocations',
      title: 'Blocks allocated here itself (3)',
      cell: (row) => <td class="allocations">{whole(row.ownCount)}</td>,
    },
    {
      id: 'name',
      text: 'Where',
      title: 'Function, file and line (4)',
      isText: true,
      cell: (row) => (
        <td class="name" title={[row.place, row.source].filter(Boolean).join('\n')}>
          <b>{row.name}</b> <span>{shortFile(row.place)}</span> {row.source && <code>{row.source}</code>}
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
      title: 'Function of the allocator that was called (6)',
      isText: true,
      cell: (row) => (
        <td class="allocator" title={row.allocator}>
          {row.allocator.toLowerCase()}
        </td>
      ),
    },
  ];
  return hasThreads ? columns : columns.filter(({ id }) => id !== 'thread');
}
