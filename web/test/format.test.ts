/** Tests the format of numbers, sizes and durations on pages. */
import { expect, test } from 'vitest';
import { axisTimes, bytes, duration, percent, shortFile, whole } from '../src/model/format.ts';

test('sizes have three significant digits', () => {
  const pairs: [number, string][] = [
    [0, '0 B'],
    [999, '999 B'],
    [999.6, '1.00 kB'],
    [10_456, '10.5 kB'],
    [72_616_123, '72.6 MB'],
    [999_600_000, '1.00 GB'],
    [1.5e15, '1.50 PB'],
  ];
  for (const [value, text] of pairs) expect(bytes(value)).toBe(text);
});

test('whole numbers are grouped and shares rounded', () => {
  expect(whole(1234567)).toBe('1,234,567');
  expect(percent(1, 3)).toBe('33%');
  expect(percent(7.43, 100)).toBe('7.4%');
  expect(percent(9_984, 10_000)).toBe('99.8%');
  expect(percent(1, 1_000_000)).toBe('<0.01%');
  expect(percent(0, 0)).toBe('0%');
});

test('durations have a unit that fits', () => {
  // The same values as in crates/report/src/units.rs.
  const pairs: [number, string][] = [
    [0, '0 s'],
    [0.0000002, '1 µs'],
    [0.000009, '9 µs'],
    [0.0015, '1.5 ms'],
    [0.012, '12 ms'],
    [1.53, '1.53 s'],
    [12.34, '12.3 s'],
    [0.0009994, '999 µs'],
    [0.0009996, '1.0 ms'],
    [0.00994, '9.9 ms'],
    [0.00996, '10 ms'],
    [0.9994, '999 ms'],
    [0.9996, '1.00 s'],
    [9.994, '9.99 s'],
    [9.997, '10.0 s'],
    [99.94, '99.9 s'],
    [99.97, '1:40 min'],
    [100.9, '1:40 min'],
    [3723, '1:02:03 h'],
  ];
  for (const [seconds, text] of pairs) expect(duration(seconds * 1e9)).toBe(text);
});

test('times of an axis have one unit', () => {
  expect(axisTimes([0, 0.5, 1, 1.5])).toEqual(['0', '0.5 s', '1.0 s', '1.5 s']);
  expect(axisTimes([0, 0.25, 0.5])).toEqual(['0', '250 ms', '500 ms']);
  expect(axisTimes([0, 50, 100])).toEqual(['0', '0:50 min', '1:40 min']);
  expect(axisTimes([0, 1800, 3600])).toEqual(['0', '0:30:00 h', '1:00:00 h']);
});

test('paths are shortened to the package or the last two parts', () => {
  expect(shortFile('/venv/lib/python3.12/site-packages/pandas/core/frame.py:3')).toBe('pandas/core/frame.py:3');
  expect(shortFile('/srv/deep/etl/job.py:1')).toBe('…/etl/job.py:1');
  expect(shortFile('job.py')).toBe('job.py');
});
