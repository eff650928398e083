/** Tests the rows of the table: grouping, sorting and CSV. */
import { expect, test } from 'vitest';
import { buildRows, csv, type RowSelection, sorted } from '../src/model/rows.ts';
import { smallData } from './small-data.ts';

const SELECTION: RowSelection = { measure: 'peak', process: -1, thread: -1, from: -1, to: -1, kind: 'kept', grouping: 'location', splitThreads: false, splitAllocators: false };

const rows = (selection: Partial<RowSelection>, sort = '-own') =>
  sorted(buildRows(smallData(), { ...SELECTION, ...selection }).rows, sort).map(
    (row) => `${row.name} own ${row.ownBytes} total ${row.totalBytes} × ${row.ownCount}`,
  );

test('a row has its own amount, and a total that includes its callees', () => {
  expect(rows({ grouping: 'function' })).toEqual([
    'parse own 850 total 900 × 10',
    'no Python frame own 100 total 100 × 1',
    '… frames too small to be listed own 50 total 50 × 5',
    '<module> own 0 total 900 × 0',
    'load own 0 total 750 × 0',
    '_find_and_load own 0 total 150 × 0',
  ]);
});

test('own bytes of all rows add up to the total', () => {
  for (const grouping of ['location', 'function', 'file', 'module'] as const) {
    const { rows, allBytes } = buildRows(smallData(), { ...SELECTION, grouping });
    expect(rows.reduce((sum, row) => sum + row.ownBytes, 0)).toBe(1000);
    expect(allBytes).toBe(1000);
  }
});

test('rows are split by thread and allocator when asked', () => {
  expect(rows({ grouping: 'module', splitThreads: true }).slice(0, 2)).toEqual([
    'lib own 750 total 800 × 9',
    'lib own 100 total 100 × 1',
  ]);
});

test('text in CSV is quoted and cannot be a formula', () => {
  const [row] = buildRows(smallData(), SELECTION).rows;
  const text = csv([{ ...row!, name: '=cmd("x")', location: 'a,b', thread: 'é', allocator: 'MALLOC' }]);
  expect(text.split('\r\n')[1]).toMatch(/,"'=cmd\(""x""\)","a,b",é,MALLOC$/);
});
