/** The page of `heaptide table`. */
import { computed } from '@preact/signals';
import { useMemo } from 'preact/hooks';
import { Timeline } from './chart/Timeline.tsx';
import { commonKey, TABLE_INTERVAL_VIEWS } from './controls/Choice.tsx';
import type { Keys } from './controls/Help.tsx';
import { Shell, showPage } from './controls/Shell.tsx';
import { Findings } from './findings/Findings.tsx';
import { showInTable } from './findings/show.ts';
import { Header, toggleTheme } from './header/Header.tsx';
import { type Data, readPageData, programOf } from './model/data.ts';
import { buildRows, COLUMNS, type Row, sorted, TEXT_COLUMNS } from './model/rows.ts';
import { expression } from './model/search.ts';
import { change, type Grouping, settings, startState } from './state.ts';
import { Controls } from './table/Controls.tsx';
import { columns } from './table/columns.tsx';
import { RowDetail } from './table/RowDetail.tsx';
import { sortBy, VirtualTable } from './table/VirtualTable.tsx';
import './style.css';
import './table/table.css';

const GROUPINGS: Grouping[] = ['location', 'function', 'file', 'module'];

const KEYS: Keys = [
  ['1  …  6', 'sort by that column; again reverses the order'],
  ['g', 'next grouping: line, function, file, module'],
  ['s  a', 'split rows by thread, by allocator'],
  ['c', 'copy the rows as CSV'],
  ['Escape', 'close the stacks, then clear the search'],
  ['↑  ↓', 'go to the next row, when the table has the focus'],
  ['Enter', 'show the stacks and callers of the row; a click does the same'],
];

function Page({ data }: { data: Data }) {
  const { all, rows, selection } = useMemo(() => {
    // The settings that the sums depend on, so that search and sort do not recompute them.
    const selection = computed(() => {
      const { measure, from, to, kind, process, thread, job, grouping, splitThreads, splitAllocators } = settings.value;
      return JSON.stringify({ measure, from, to, kind, process, thread, job, grouping, splitThreads, splitAllocators });
    });
    const all = computed(() => buildRows(data, JSON.parse(selection.value)));
    const order = computed(() => settings.value.sort);
    const search = computed(() => settings.value.search);
    const inOrder = computed(() => sorted(all.value.rows, order.value));
    const rows = computed(() => {
      const wanted = search.value === '' ? undefined : expression(search.value);
      if (!wanted) return inOrder.value;
      return inOrder.value.filter((row) => wanted.test(`${row.name} ${row.location}`));
    });
    return { all, rows, selection };
  }, [data]);
  const isChosen = (row: Row) => String(row.id) === settings.value.row;
  const chosen = settings.value.row === '' ? undefined : all.value.rows.find(isChosen);
  const hasThreads = new Set(data.origins.thread).size > 1;
  return (
    <Shell
      className="table-page"
      keys={KEYS}
      onKey={(key, help) => commonKey(data, key, help, toggleTheme, TABLE_INTERVAL_VIEWS) || tableKey(key)}
    >
      {(help) => (
        <>
          <Header data={data} what="table" onHelp={help} isInterval />
          <Timeline data={data} />
          <Controls data={data} rows={rows.value} all={all.value} />
          <div class="with-findings">
            <VirtualTable
              rows={rows.value}
              columns={columns(all.value, hasThreads)}
              label="Table of allocations"
              onChoose={(row) => change({ row: isChosen(row) ? '' : String(row.id) })}
              isChosen={isChosen}
            />
            {chosen ? (
              <RowDetail data={data} row={chosen} all={all.value} selection={JSON.parse(selection.value)} />
            ) : (
              <Findings data={data} onShow={(finding) => showInTable(data, finding)} />
            )}
          </div>
        </>
      )}
    </Shell>
  );
}

function tableKey(key: string): boolean {
  const now = settings.value;
  const column = COLUMNS[Number(key) - 1];
  if (column) {
    sortBy({ id: column, isText: TEXT_COLUMNS.includes(column) });
    return true;
  }
  switch (key) {
    case 'g':
      change({ row: '', grouping: GROUPINGS[(GROUPINGS.indexOf(now.grouping) + 1) % GROUPINGS.length]! });
      return true;
    case 's':
      change({ row: '', splitThreads: !now.splitThreads });
      return true;
    case 'a':
      change({ row: '', splitAllocators: !now.splitAllocators });
      return true;
    case 'c':
      document.getElementById('copy')?.click();
      return true;
    case 'Escape':
      change(now.row ? { row: '' } : { search: '' });
      return true;
    default:
      return false;
  }
}

showPage(readPageData(), (data) => {
  startState(data);
  return { title: `${programOf(data)} · table`, page: <Page data={data} /> };
});
