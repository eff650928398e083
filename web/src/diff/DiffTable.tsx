/** Table of a comparison. Clicking on a stack shows it in the graph. */
import { bytes, changePercent, shortFile, signed, whole } from '../model/format.ts';
import { change } from '../state.ts';
import { type ColumnOf, VirtualTable } from '../table/VirtualTable.tsx';
import type { ChangeRow } from './rows.ts';

export function DiffTable({ rows }: { rows: ChangeRow[] }) {
  const largest = rows.reduce((most, row) => Math.max(most, Math.abs(row.change)), 1);
  const columns: ColumnOf<ChangeRow>[] = [
    { id: 'change', text: 'Change', title: 'Growth in bytes (1)', cell: (row) => <ChangeCell row={row} largest={largest} /> },
    { id: 'before', text: 'Before', title: 'Bytes before (2)', cell: (row) => <SizeTd className="before" value={row.before} /> },
    { id: 'after', text: 'After', title: 'Bytes after (3)', cell: (row) => <SizeTd className="after" value={row.after} /> },
    {
      id: 'blocks',
      text: 'Blocks',
      title: 'Growth in blocks (4)',
      cell: (row) => (
        <td class="blocks" title={`${whole(row.beforeCount)} → ${whole(row.afterCount)} blocks`}>
          {signed(row.afterCount - row.beforeCount, 'count')}
        </td>
      ),
    },
    {
      id: 'name',
      text: 'Where',
      title: 'Function, file and callers (5)',
      isText: true,
      cell: (row) => (
        <td class="name" title={[row.location, row.callers && `called by ${row.callers}`].filter(Boolean).join('\n')}>
          <b>{row.name}</b> <span>{shortFile(row.location)}</span> {row.callers && <span class="callers">← {row.callers}</span>}
        </td>
      ),
    },
  ];
  const show = (row: ChangeRow) => row.path && change({ view: 'graph', zoom: row.path, inverted: false });
  return <VirtualTable rows={rows} columns={columns} label="Table of changes" onChoose={show} />;
}

function ChangeCell({ row, largest }: { row: ChangeRow; largest: number }) {
  const sense = row.isNoise || row.change === 0 ? 'same' : row.change > 0 ? 'grown' : 'shrunk';
  const noise = row.error > 0 ? ` ± ${bytes(row.error)}${row.isNoise ? ', within noise' : ''}` : '';
  return (
    <td class={`change ${sense}`} title={`${signed(row.change, 'count')} bytes${noise}`}>
      <span class="size">{signed(row.change, 'bytes')}</span>
      <span class="share">{changePercent(row.before, row.change)}</span>
      <i class="measure" style={{ width: `${((Math.abs(row.change) / largest) * 100).toFixed(2)}%` }} aria-hidden="true" />
    </td>
  );
}

function SizeTd({ className, value }: { className: string; value: number }) {
  return (
    <td class={className} title={`${whole(value)} bytes`}>
      {bytes(value)}
    </td>
  );
}
