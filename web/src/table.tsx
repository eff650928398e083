/** The page of `heaptide table`. */
import { computed, useSignal } from '@preact/signals';
import { render } from 'preact';
import { useEffect, useMemo } from 'preact/hooks';
import { Timeline } from './chart/Timeline.tsx';
import { commonKey, isTyping, KINDS_OF_TABLE } from './controls/Choice.tsx';
import { Help, type Keys } from './controls/Help.tsx';
import { Findings } from './findings/Findings.tsx';
import { showInTable } from './findings/show.ts';
import { Header, toggleTheme } from './header/Header.tsx';
import { type Data, dataOfPage } from './model/data.ts';
import { buildRows, COLUMNS, sorted, TEXT_COLUMNS } from './model/rows.ts';
import { expression } from './model/search.ts';
import { change, type Grouping, settings, startState } from './state.ts';
import { Controls } from './table/Controls.tsx';
import { columns } from './table/columns.tsx';
import { sortBy, VirtualTable } from './table/VirtualTable.tsx';
import './style.css';
import './table/table.css';

const GROUPINGS: Grouping[] = ['location', 'function', 'file', 'module'];

const KEYS: Keys = [
  ['1  …  6', 'sort by that column; once more, the other way round'],
  ['g', 'next: a row for each line, function, file, module'],
  ['s  a', 'split rows by thread, by allocator'],
  ['c', 'copy the rows as CSV'],
  ['Escape', 'clear the search'],
  ['↑  ↓', 'scroll, when the table has the focus'],
];

function Page({ data }: { data: Data }) {
  const isHelp = useSignal(false);
  const { all, rows } = useMemo(() => {
    // What the sums depend on, so that a search or a sort does not make them anew.
    const cut = computed(() => {
      const { measure, from, to, kind, process, thread, grouping, splitThreads, splitAllocators } = settings.value;
      return JSON.stringify({ measure, from, to, kind, process, thread, grouping, splitThreads, splitAllocators });
    });
    const all = computed(() => buildRows(data, JSON.parse(cut.value)));
    const order = computed(() => settings.value.sort);
    const search = computed(() => settings.value.search);
    const inOrder = computed(() => sorted(all.value.rows, order.value));
    const rows = computed(() => {
      const wanted = search.value === '' ? undefined : expression(search.value);
      if (!wanted) return inOrder.value;
      return inOrder.value.filter((row) => wanted.test(`${row.name} ${row.place}`));
    });
    return { all, rows };
  }, [data]);
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if (isHelp.value || isTyping(event)) return;
      if (commonKey(data, event.key, () => (isHelp.value = true), toggleTheme, KINDS_OF_TABLE) || tableKey(event.key)) event.preventDefault();
    };
    window.addEventListener('keydown', onKey);
    return () => window.removeEventListener('keydown', onKey);
  }, []);
  const hasThreads = new Set(data.origins.thread).size > 1;
  const isBadSearch = settings.value.search !== '' && expression(settings.value.search) === undefined;
  return (
    <main class="table-page">
      <Header data={data} what="table" onHelp={() => (isHelp.value = true)} />
      <Timeline data={data} />
      <Controls data={data} rows={rows.value} all={all.value} isBadSearch={isBadSearch} />
      <div class="beside">
        <VirtualTable rows={rows.value} columns={columns(all.value, hasThreads)} label="Table of allocations" />
        <Findings data={data} onShow={(finding) => showInTable(data, finding)} />
      </div>
      {isHelp.value && (
        <Help
          keys={KEYS}
          note="The address of the page keeps the view: copy it to share what you see."
          onClose={() => (isHelp.value = false)}
        />
      )}
    </main>
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
      change({ grouping: GROUPINGS[(GROUPINGS.indexOf(now.grouping) + 1) % GROUPINGS.length]! });
      return true;
    case 's':
      change({ splitThreads: !now.splitThreads });
      return true;
    case 'a':
      change({ splitAllocators: !now.splitAllocators });
      return true;
    case 'c':
      document.getElementById('copy')?.click();
      return true;
    case 'Escape':
      change({ search: '' });
      return true;
    default:
      return false;
  }
}

dataOfPage().then(
  (data) => {
    document.title = `${data.head.processes[0]?.command_line || 'program'} · table · Heaptide`;
    startState(data);
    const root = document.getElementById('page')!;
    root.replaceChildren();
    render(<Page data={data} />, root);
    document.documentElement.dataset.ready = 'true';
  },
  (error: unknown) => {
    document.querySelector('.wait')!.textContent = `This page cannot be shown: ${error instanceof Error ? error.message : error}`;
  },
);
