/** The page of `heaptide diff --html`. */
import { computed, useSignal } from '@preact/signals';
import { render } from 'preact';
import { useEffect, useMemo } from 'preact/hooks';
import { commonKey, isTyping } from './controls/Choice.tsx';
import { Help, type Keys } from './controls/Help.tsx';
import { DiffControls } from './diff/Controls.tsx';
import { Curves } from './diff/Curves.tsx';
import { DiffTable } from './diff/DiffTable.tsx';
import { DiffHeader } from './diff/Header.tsx';
import { DiffLegend } from './diff/Legend.tsx';
import { COLUMNS, groupRows, sorted, stackRows } from './diff/rows.ts';
import { FlameView } from './flame/FlameView.tsx';
import { graphKey } from './flame/keys.ts';
import { openSession, type Session } from './flame/session.ts';
import { toggleTheme } from './header/Header.tsx';
import { dataOfPage } from './model/data.ts';
import { expression } from './model/search.ts';
import { buildTree, type Width } from './model/tree.ts';
import { change, type Grouping, settings, shape, startState } from './state.ts';
import { sortBy } from './table/VirtualTable.tsx';
import './style.css';
import './table/table.css';

const WIDTHS: Width[] = ['change', 'both', 'before', 'after'];
const GROUPINGS: Grouping[] = ['stack', 'location', 'function', 'file', 'module'];

const KEYS: Keys = [
  ['v', 'graph or table'],
  ['w', 'next width of frames: change, larger side, before, after'],
  ['←  →  ↑  ↓', 'move from frame to frame'],
  ['Enter', 'zoom to the frame; once more zooms out'],
  ['Backspace', 'zoom out by one frame'],
  ['Escape', 'clear the search, then zoom out'],
  ['n  N', 'next and previous match of the search'],
  ['i', 'upside down: who allocated, and who called it'],
  ['l', 'merge frames by function or by line'],
  ['o', 'root at the top or at the bottom'],
  ['1  …  5', 'sort the table by that column'],
  ['g', 'next: a row for each stack, line, function, file, module'],
  ['c', 'copy the rows as CSV'],
];

function Page({ session }: { session: Session }) {
  const isHelp = useSignal(false);
  const rows = useMemo(() => rowsOf(session), [session]);
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if (isHelp.value || isTyping(event)) return;
      const isOurs =
        commonKey(session.data, event.key, () => (isHelp.value = true), toggleTheme) ||
        diffKey(event.key) ||
        (settings.value.view === 'graph' ? graphKey(session, event.key) : tableKey(event.key));
      if (isOurs) event.preventDefault();
    };
    window.addEventListener('keydown', onKey);
    return () => window.removeEventListener('keydown', onKey);
  }, [session]);
  const isGraph = settings.value.view === 'graph';
  return (
    <main class="flame-page">
      <DiffHeader data={session.data} onHelp={() => (isHelp.value = true)} />
      <Curves data={session.data} />
      <DiffControls session={session} rows={isGraph ? [] : rows.value} />
      {isGraph ? <FlameView session={session} /> : <DiffTable rows={rows.value} />}
      <DiffLegend data={session.data} />
      {isHelp.value && (
        <Help
          keys={KEYS}
          note="A click on a row of the table shows its stack in the graph. The address of the page keeps the view: copy it to share what you see."
          onClose={() => (isHelp.value = false)}
        />
      )}
    </main>
  );
}

function rowsOf({ data }: Session) {
  const all = computed(() => {
    const { grouping, merge } = settings.value;
    // Stacks are those of the upright tree, whatever the graph shows.
    if (grouping === 'stack') {
      const tree = buildTree(data, { ...shape.value, inverted: false, splitThreads: false, width: 'both' });
      return stackRows(data, tree, merge === 'line');
    }
    const { measure, process, thread } = shape.value;
    return groupRows(data, { measure, process, thread, grouping, splitThreads: false, splitAllocators: false });
  });
  const inOrder = computed(() => sorted(all.value, settings.value.sort));
  return computed(() => {
    const { search } = settings.value;
    const wanted = search === '' ? undefined : expression(search);
    if (!wanted) return inOrder.value;
    return inOrder.value.filter((row) => wanted.test(`${row.name} ${row.place} ${row.callers}`));
  });
}

function diffKey(key: string): boolean {
  const { view, width } = settings.value;
  switch (key) {
    case 'v':
      change({ view: view === 'graph' ? 'table' : 'graph' });
      return true;
    case 'w':
      change({ width: WIDTHS[(WIDTHS.indexOf(width) + 1) % WIDTHS.length]! });
      return true;
    default:
      return false;
  }
}

function tableKey(key: string): boolean {
  const column = COLUMNS[Number(key) - 1];
  if (column) {
    sortBy({ id: column, isText: column === 'name' });
    return true;
  }
  switch (key) {
    case 'g':
      change({ grouping: GROUPINGS[(GROUPINGS.indexOf(settings.value.grouping) + 1) % GROUPINGS.length]! });
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
    document.title = `${data.head.processes[0]?.command_line || 'program'} · diff · Heaptide`;
    startState(data);
    const root = document.getElementById('page')!;
    root.replaceChildren();
    render(<Page session={openSession(data)} />, root);
    document.documentElement.dataset.ready = 'true';
  },
  (error: unknown) => {
    document.querySelector('.wait')!.textContent = `This page cannot be shown: ${error instanceof Error ? error.message : error}`;
  },
);
