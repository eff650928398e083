/** The data of the page of lines, as `report::html::lines` writes it, and its sums. */
import type { Figure } from '../header/Figures.tsx';
import { bytes, plural, signed, whole } from '../model/format.ts';

export interface Column {
  title: string;
  unit: 'bytes' | 'count';
  /** How the column adds up: to a sum, or to its largest value, for the size of the process. */
  total: 'sum' | 'most';
  /** Values may be negative. */
  is_change: boolean;
}

export interface Table {
  file: string;
  function: string;
  /** Number of first rows whose change is not their own: a function's first line has all memory from before the call. */
  skipped: number;
  rows: { number: number; text: string; cells: (number | null)[] }[];
}

export interface LinesData {
  head: { format: number; profiler: string };
  columns: Column[];
  /** The column that the bars show. */
  bar: number;
  tables: Table[];
}

export function cellText(column: Column, value: number | null | undefined): string {
  if (value === null || value === undefined) return '';
  if (column.unit === 'count') return whole(value);
  return column.is_change ? (value === 0 ? '0 B' : signed(value, 'bytes')) : bytes(value);
}

export function totalOf({ columns }: LinesData, table: Table, index: number): number | null {
  const column = columns[index]!;
  const rows = column.is_change ? table.rows.slice(table.skipped) : table.rows;
  const values = rows.map((row) => row.cells[index]).filter((value) => value !== null && value !== undefined);
  if (values.length === 0) return null;
  return column.total === 'sum' ? values.reduce((all, value) => all + value, 0) : Math.max(...values);
}

/** Formats a total; one that is not a sum is marked. */
export function totalText(data: LinesData, table: Table, index: number): string {
  const column = data.columns[index]!;
  const text = cellText(column, totalOf(data, table, index));
  return column.total === 'most' && text !== '' ? `max ${text}` : text;
}

/** Returns the totals of the page. Lines of one function may call another, so sizes of functions are not added. */
export function figuresOf(data: LinesData): Figure[] {
  const { tables, columns } = data;
  if (tables.length === 1) {
    const totals = columns.map((column, index) => [column.title.toLowerCase(), cellText(column, totalOf(data, tables[0]!, index)), ''] as const);
    return totals.filter(([, text]) => text !== '');
  }
  const nLines = tables.reduce((all, table) => all + table.rows.length, 0);
  return [
    ['functions', whole(tables.length), ''],
    ['lines', whole(nLines), plural(nLines, 'line')],
  ];
}
