/** Shared by pages that compare two sides: rows of the table, and keys. */
import { computed } from '@preact/signals';
import type { Keys } from '../controls/Help.tsx';
import { graphKey } from '../flame/keys.ts';
import type { GraphState } from '../flame/graph-state.ts';
import { expression } from '../model/search.ts';
import { buildTree, type Width } from '../model/tree.ts';
import { change, type Grouping, settings, shape } from '../state.ts';
import { sortBy } from '../table/VirtualTable.tsx';
import { COLUMNS, groupRows, sorted, stackRows } from './rows.ts';

const WIDTHS: Width[] = ['change', 'both', 'before', 'after'];
const GROUPINGS: Grouping[] = ['stack', 'location', 'function', 'file', 'module'];

export const KEYS: Keys = [
  ['v', 'graph or table'],
  ['w', 'next width of frames: change, larger side, before, after'],
  ['←  →  ↑  ↓', 'move from frame to frame'],
  ['Enter', 'zoom to the frame; again zooms out'],
  ['Backspace', 'zoom out by one frame'],
  ['Escape', 'clear the search, then zoom out'],
  ['n  N', 'next and previous match of the search'],
  ['i', 'invert: allocating functions first, then their callers'],
  ['l', 'merge frames by function or by line'],
  ['o', 'root at the top or at the bottom'],
  ['1  …  5', 'sort the table by that column'],
  ['g', 'next grouping: stack, line, function, file, module'],
  ['c', 'copy the rows as CSV'],
];

export function changeRows({ data }: GraphState) {
  const all = computed(() => {
    const { grouping, merge } = settings.value;
    // Stacks always come from the upright tree, also if the graph is inverted.
    if (grouping === 'stack') {
      const tree = buildTree(data, { ...shape.value, inverted: false, splitThreads: false, width: 'both' });
      return stackRows(data, tree, merge === 'line');
    }
    return groupRows(data, { ...shape.value, grouping, splitThreads: false, splitAllocators: false });
  });
  const inOrder = computed(() => sorted(all.value, settings.value.sort));
  return computed(() => {
    const { search } = settings.value;
    const wanted = search === '' ? undefined : expression(search);
    if (!wanted) return inOrder.value;
    return inOrder.value.filter((row) => wanted.test(`${row.name} ${row.location} ${row.callers}`));
  });
}

/** Handles a key of a page that compares two sides; returns whether it was one. */
export function changeKey(graph: GraphState, key: string): boolean {
  if (viewKey(key)) return true;
  return settings.value.view === 'graph' ? graphKey(graph, key) : tableKey(key);
}

function viewKey(key: string): boolean {
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
