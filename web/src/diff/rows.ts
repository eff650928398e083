/** Rows of a comparison: stacks, lines, functions, files or modules with their sizes before and after. */
import type { Data } from '../model/data.ts';
import { label, type Label } from '../model/format.ts';
import { buildRows, cell, type RowSelection } from '../model/rows.ts';
import { changeOf, type Change } from '../model/sides.ts';
import { pathTo, type Tree } from '../model/tree.ts';

export interface ChangeRow extends Change {
  name: string;
  /** File and line. */
  location: string;
  /** Callers, innermost first; only for stacks. */
  callers: string;
  beforeCount: number;
  afterCount: number;
  /** Keys from the root down to the frame; only for stacks. */
  path: number[] | undefined;
}

/** Returns one row per stack whose own allocations changed. */
export function stackRows(data: Data, tree: Tree, byLine: boolean): ChangeRow[] {
  const { before, after } = tree.sides!.own;
  const rows: ChangeRow[] = [];
  for (let node = 0; node < tree.n; node++) {
    const old = before.bytes[node]!;
    const now = after.bytes[node]!;
    const beforeCount = before.count[node]!;
    const afterCount = after.count[node]!;
    if (old === now && beforeCount === afterCount) continue;
    const callers: string[] = [];
    for (let at = tree.parent[node]!; at !== 0; at = tree.parent[at]!) callers.push(callerName(label(data, tree, at, byLine)));
    rows.push({
      ...label(data, tree, node, byLine),
      ...changeOf(old, now, ownVariance(tree, node), 'bytes'),
      callers: callers.join(' ← '),
      beforeCount,
      afterCount,
      path: pathTo(tree, node),
    });
  }
  return rows;
}

/** Uses the file for a module's top level, because all have the same name. */
function callerName({ name, location }: Label): string {
  return name === '<module>' ? (location.split('/').at(-1) ?? name) : name;
}

/** Returns the variance of a node without its children. */
function ownVariance(tree: Tree, node: number): number {
  let own = tree.sides!.variance[node]!;
  for (const child of tree.children.subarray(tree.firstChild[node], tree.firstChild[node + 1])) {
    own -= tree.sides!.variance[child]!;
  }
  return Math.max(0, own);
}

/** Returns one row per line, function, file or module, by own allocations. */
export function groupRows(data: Data, selection: RowSelection): ChangeRow[] {
  const [old, now] = (['before', 'after'] as const).map((side) => {
    const { rows } = buildRows(data, { ...selection, side });
    return new Map(rows.map((row) => [row.id, row]));
  });
  const rows: ChangeRow[] = [];
  for (const id of new Set([...old!.keys(), ...now!.keys()])) {
    const before = old!.get(id);
    const after = now!.get(id);
    const { name, location } = (after ?? before)!;
    const variance = (before?.ownVariance ?? 0) + (after?.ownVariance ?? 0);
    const change = changeOf(before?.ownBytes ?? 0, after?.ownBytes ?? 0, variance, 'bytes');
    const beforeCount = before?.ownCount ?? 0;
    const afterCount = after?.ownCount ?? 0;
    if (change.change === 0 && beforeCount === afterCount) continue;
    rows.push({ name, location, ...change, callers: '', beforeCount, afterCount, path: undefined });
  }
  return rows;
}

export const COLUMNS = ['change', 'before', 'after', 'blocks', 'name'] as const;
export type Column = (typeof COLUMNS)[number];

export function sorted(rows: ChangeRow[], sort: string): ChangeRow[] {
  const isDown = sort.startsWith('-');
  const column = sort.replace('-', '') as Column;
  const name = (row: ChangeRow) => `${row.name} ${row.location} ${row.callers}`;
  const value = (row: ChangeRow): number | string => {
    switch (column) {
      case 'before':
        return row.before;
      case 'after':
        return row.after;
      case 'blocks':
        return row.afterCount - row.beforeCount;
      case 'name':
        return name(row);
      default:
        return row.change;
    }
  };
  const compare = (one: number | string, other: number | string) => (one < other ? -1 : one > other ? 1 : 0);
  return [...rows].sort((one, other) => {
    const order = compare(value(one), value(other));
    return (isDown ? -order : order) || compare(name(one), name(other));
  });
}

export function csv(rows: readonly ChangeRow[]): string {
  const head = ['change_bytes', 'before_bytes', 'after_bytes', 'error_bytes', 'is_noise', 'before_blocks', 'after_blocks', 'name', 'place', 'callers'];
  const lines = rows.map((row) => [
    row.change,
    row.before,
    row.after,
    Math.round(row.error),
    row.isNoise,
    row.beforeCount,
    row.afterCount,
    ...[row.name, row.location, row.callers].map(cell),
  ]);
  return [head, ...lines].map((line) => line.join(',')).join('\r\n') + '\r\n';
}
