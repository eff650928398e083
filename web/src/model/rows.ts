/** Rows of the table: own and total amounts of each location, function, file or module. */
import { CUT, type Data, NO_FRAMES, passing, threadName } from './data.ts';
import { functionName, locationName, plural } from './format.ts';
import { entryAmounts, type Selection } from './intervals.ts';
import type { Grouping } from '../state.ts';

export interface RowSelection extends Selection {
  grouping: Grouping;
  splitThreads: boolean;
  splitAllocators: boolean;
}

export interface Row {
  /** Identifies the same row under other filters. */
  id: string | number;
  name: string;
  location: string;
  source: string;
  ownBytes: number;
  totalBytes: number;
  ownCount: number;
  totalCount: number;
  /** Variance of the own bytes, in square KiB. */
  ownVariance: number;
  thread: string;
  allocator: string;
}

export interface Rows {
  rows: Row[];
  /** Sum of everything that passes the filter. */
  allBytes: number;
  allCount: number;
}

interface Sums {
  key: number;
  own: [number, number];
  total: [number, number];
  variance: number;
  threads: Set<number>;
  allocators: Set<string>;
}

/** Keys of code that belongs to no module; smaller than the special locations. */
const STANDARD_LIBRARY = -10;
const IMPORT_SYSTEM = -11;

export function buildRows(data: Data, selection: RowSelection): Rows {
  const { n, parent, location } = data.nodes;
  const keyOf = Int32Array.from(location, (at) => key(data, at, selection.grouping));
  const passes = passing(data, selection);
  const { bytes, count, variance } = entryAmounts(data, selection);
  const sums = new Map<string | number, Sums>();
  // The entry that last counted a key: a recursive function counts a block once.
  const counted = new Map<number, number>();
  let allBytes = 0;
  let allCount = 0;
  for (let entry = 0; entry < data.own.n; entry++) {
    const origin = data.own.origin[entry]!;
    if (!passes[origin] || (bytes[entry] === 0 && count[entry] === 0)) continue;
    const thread = data.origins.thread[origin]!;
    const allocator = data.origins.allocator[origin]!;
    const node = data.own.node[entry]!;
    allBytes += bytes[entry]!;
    allCount += count[entry]!;
    for (let at = node; at !== 0 && at < n; at = parent[at]!) {
      const known = keyOf[at]!;
      if (counted.get(known) === entry) continue;
      counted.set(known, entry);
      const name = rowName(known, thread, allocator, selection);
      let sum = sums.get(name);
      if (!sum) {
        sum = { key: known, own: [0, 0], total: [0, 0], variance: 0, threads: new Set(), allocators: new Set() };
        sums.set(name, sum);
      }
      sum.total[0] += bytes[entry]!;
      sum.total[1] += count[entry]!;
      sum.threads.add(thread);
      sum.allocators.add(allocator);
      if (at === node) {
        sum.own[0] += bytes[entry]!;
        sum.own[1] += count[entry]!;
        if (variance) sum.variance += variance[entry]!;
      }
    }
  }
  return { rows: [...sums].map(([id, sum]) => row(data, id, sum, selection)), allBytes, allCount };
}

/** A call stack that leads to a row: `node` is the innermost node on it that belongs to the row. */
export interface RowStack {
  node: number;
  bytes: number;
  count: number;
}

/** Returns the stacks that lead to a row, those with the most bytes first. Their sums are the row's total. */
export function stacksOfRow(data: Data, selection: RowSelection, id: string): RowStack[] {
  const { parent, location } = data.nodes;
  const passes = passing(data, selection);
  const { bytes, count } = entryAmounts(data, selection);
  const stacks = new Map<number, RowStack>();
  for (let entry = 0; entry < data.own.n; entry++) {
    const origin = data.own.origin[entry]!;
    if (!passes[origin] || (bytes[entry] === 0 && count[entry] === 0)) continue;
    const [thread, allocator] = [data.origins.thread[origin]!, data.origins.allocator[origin]!];
    for (let node = data.own.node[entry]!; node !== 0; node = parent[node]!) {
      if (String(rowName(key(data, location[node]!, selection.grouping), thread, allocator, selection)) !== id) continue;
      const stack = stacks.get(node) ?? { node, bytes: 0, count: 0 };
      stacks.set(node, { node, bytes: stack.bytes + bytes[entry]!, count: stack.count + count[entry]! });
      break;
    }
  }
  return [...stacks.values()].sort((one, other) => other.bytes - one.bytes || one.node - other.node);
}

/** Returns the amounts of the stacks by the location that calls the row; −1 if nothing does. */
export function callersOf(data: Data, stacks: RowStack[]): { location: number; bytes: number }[] {
  const sums = new Map<number, number>();
  for (const { node, bytes } of stacks) {
    const location = data.nodes.location[data.nodes.parent[node]!]!;
    sums.set(location, (sums.get(location) ?? 0) + bytes);
  }
  return [...sums].map(([location, bytes]) => ({ location, bytes })).sort((one, other) => other.bytes - one.bytes);
}

function rowName(key: number, thread: number, allocator: string, selection: RowSelection): string | number {
  if (!selection.splitThreads && !selection.splitAllocators) return key;
  return `${key} ${selection.splitThreads ? thread : ''} ${selection.splitAllocators ? allocator : ''}`;
}

function key(data: Data, location: number, grouping: Grouping): number {
  if (location < 0) return location;
  const { file, module, import_system, library } = data.locations;
  switch (grouping) {
    case 'stack':
    case 'location':
      return location;
    case 'function':
      return data.functionOf[location]!;
    case 'file':
      return file[location]!;
    case 'module':
      if (library[location]! >= 0) return library[location]!;
      if (import_system[location]) return IMPORT_SYSTEM;
      return module[location]! < 0 ? STANDARD_LIBRARY : module[location]!;
  }
}

function row(data: Data, id: string | number, sum: Sums, selection: RowSelection): Row {
  const { key: at, own, total, threads, allocators } = sum;
  const isLocation = at >= 0 && (selection.grouping === 'location' || selection.grouping === 'function');
  const byLine = selection.grouping === 'location';
  return {
    id,
    name: isLocation ? functionName(data, at) : groupName(data, at),
    location: isLocation ? locationName(data, at, byLine) : '',
    source: isLocation && byLine ? data.locations.source[at]! : '',
    ownBytes: own[0],
    ownCount: own[1],
    totalBytes: total[0],
    totalCount: total[1],
    ownVariance: sum.variance,
    thread: threads.size === 1 ? threadName(data, [...threads][0]!) : plural(threads.size, 'thread'),
    allocator: [...allocators].sort().join(', '),
  };
}

function groupName(data: Data, key: number): string {
  switch (key) {
    case NO_FRAMES:
      return 'no Python frame';
    case CUT:
      return '… frames too small to be listed';
    case STANDARD_LIBRARY:
      return 'standard library';
    case IMPORT_SYSTEM:
      return 'import system';
    default:
      return data.texts[key]!;
  }
}

export const COLUMNS = ['own', 'total', 'allocations', 'name', 'thread', 'allocator'] as const;
export type Column = (typeof COLUMNS)[number];
export const TEXT_COLUMNS: readonly Column[] = ['name', 'thread', 'allocator'];

/** Sorts by a column; a leading minus means largest first. Ties are sorted by name. */
export function sorted(rows: Row[], sort: string): Row[] {
  const isDown = sort.startsWith('-');
  const column = sort.replace('-', '') as Column;
  const value = (row: Row): number | string => {
    switch (column) {
      case 'total':
        return row.totalBytes;
      case 'allocations':
        return row.ownCount;
      case 'name':
        return `${row.name} ${row.location}`;
      case 'thread':
        return row.thread;
      case 'allocator':
        return row.allocator;
      default:
        return row.ownBytes;
    }
  };
  const compare = (one: number | string, other: number | string) => (one < other ? -1 : one > other ? 1 : 0);
  const location = (row: Row) => `${row.name} ${row.location}`;
  return [...rows].sort((one, other) => {
    const order = compare(value(one), value(other)) || compare(one.totalBytes, other.totalBytes);
    return (isDown ? -order : order) || compare(location(one), location(other));
  });
}

/** Formats rows as CSV (RFC 4180) with unrounded numbers. */
export function csv(rows: readonly Row[]): string {
  const head = ['own_bytes', 'total_bytes', 'own_allocations', 'total_allocations', 'name', 'place', 'thread', 'allocator'];
  const lines = rows.map((row) => [
    row.ownBytes,
    row.totalBytes,
    row.ownCount,
    row.totalCount,
    ...[row.name, row.location, row.thread, row.allocator].map(cell),
  ]);
  return [head, ...lines].map((line) => line.join(',')).join('\r\n') + '\r\n';
}

/** Formats a CSV cell. Text that a spreadsheet would treat as a formula gets an apostrophe, which spreadsheets hide. */
export function cell(text: string): string {
  const safe = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}
