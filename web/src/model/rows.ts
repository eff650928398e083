/** The rows of the table: what each location, function, file or module holds by itself and with what it called. */
import { CUT, type Data, NO_FRAMES, passing, threadName } from './data.ts';
import { functionName, placeName, plural } from './format.ts';
import { entryAmounts, type Selection } from './intervals.ts';
import type { Grouping } from '../state.ts';

export interface Cut extends Selection {
  grouping: Grouping;
  splitThreads: boolean;
  splitAllocators: boolean;
}

export interface Row {
  /** The same in the rows of another filter. */
  id: string | number;
  name: string;
  place: string;
  source: string;
  ownBytes: number;
  totalBytes: number;
  ownCount: number;
  totalCount: number;
  /** Of the own bytes, in square KiB. */
  ownVariance: number;
  thread: string;
  allocator: string;
}

export interface Rows {
  rows: Row[];
  /** Everything that the filter lets pass. */
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

/** Keys of what belongs to no module, behind those that a place has. */
const STANDARD_LIBRARY = -10;
const IMPORT_SYSTEM = -11;

export function buildRows(data: Data, cut: Cut): Rows {
  const { n, parent, place } = data.nodes;
  const keyOf = Int32Array.from(place, (at) => key(data, at, cut.grouping));
  const passes = passing(data, cut);
  const { bytes, count, variance } = entryAmounts(data, cut);
  const sums = new Map<string | number, Sums>();
  // The entry that last counted a key: one that calls itself holds a block once.
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
      const name = rowName(known, thread, allocator, cut);
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
  return { rows: [...sums].map(([id, sum]) => row(data, id, sum, cut)), allBytes, allCount };
}

function rowName(key: number, thread: number, allocator: string, cut: Cut): string | number {
  if (!cut.splitThreads && !cut.splitAllocators) return key;
  return `${key} ${cut.splitThreads ? thread : ''} ${cut.splitAllocators ? allocator : ''}`;
}

function key(data: Data, place: number, grouping: Grouping): number {
  if (place < 0) return place;
  const { file, module, import_system, library } = data.locations;
  switch (grouping) {
    case 'stack':
    case 'location':
      return place;
    case 'function':
      return data.functionOf[place]!;
    case 'file':
      return file[place]!;
    case 'module':
      if (library[place]! >= 0) return library[place]!;
      if (import_system[place]) return IMPORT_SYSTEM;
      return module[place]! < 0 ? STANDARD_LIBRARY : module[place]!;
  }
}

function row(data: Data, id: string | number, sum: Sums, cut: Cut): Row {
  const { key: at, own, total, threads, allocators } = sum;
  const isPlace = at >= 0 && (cut.grouping === 'location' || cut.grouping === 'function');
  const byLine = cut.grouping === 'location';
  return {
    id,
    name: isPlace ? functionName(data, at) : groupName(data, at),
    place: isPlace ? placeName(data, at, byLine) : '',
    source: isPlace && byLine ? data.locations.source[at]! : '',
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

/** `sort` is a column, with a minus before it for the largest first. Equal rows are in the order of their names. */
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
        return `${row.name} ${row.place}`;
      case 'thread':
        return row.thread;
      case 'allocator':
        return row.allocator;
      default:
        return row.ownBytes;
    }
  };
  const compare = (one: number | string, other: number | string) => (one < other ? -1 : one > other ? 1 : 0);
  const place = (row: Row) => `${row.name} ${row.place}`;
  return [...rows].sort((one, other) => {
    const order = compare(value(one), value(other)) || compare(one.totalBytes, other.totalBytes);
    return (isDown ? -order : order) || compare(place(one), place(other));
  });
}

/** Rows as other programs read them: RFC 4180, whole numbers. */
export function csv(rows: readonly Row[]): string {
  const head = ['own_bytes', 'total_bytes', 'own_allocations', 'total_allocations', 'name', 'place', 'thread', 'allocator'];
  const lines = rows.map((row) => [
    row.ownBytes,
    row.totalBytes,
    row.ownCount,
    row.totalCount,
    ...[row.name, row.place, row.thread, row.allocator].map(cell),
  ]);
  return [head, ...lines].map((line) => line.join(',')).join('\r\n') + '\r\n';
}

/** A text as a cell. A spreadsheet would take some texts for formulas: those get an apostrophe, which it hides. */
export function cell(text: string): string {
  const safe = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}
