/** Tests the format of numbers, sizes and durations on pages. */
import { expect, test } from 'vitest';
import { bytes, duration, percent, shortFile, whole } from '../src/model/format.ts';

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

test('whole numbers are grouped, shares and times rounded', () => {
  expect(whole(1234567)).toBe('1,234,567');
  expect(percent(1, 3)).toBe('33%');
  expect(percent(7.43, 100)).toBe('7.4%');
  expect(percent(9_984, 10_000)).toBe('99.8%');
  expect(percent(1, 1_000_000)).toBe('<0.01%');
  expect(percent(0, 0)).toBe('0%');
  expect(duration(1.5e6)).toBe('1.5 ms');
  expect(duration(1.53e9)).toBe('1.53 s');
  expect(duration(3_723e9)).toBe('1:02:03 h');
});

test('paths are shortened to the package or the last two parts', () => {
  expect(shortFile('/venv/lib/python3.12/site-packages/pandas/core/frame.py:3')).toBe('pandas/core/frame.py:3');
  expect(shortFile('/srv/deep/etl/job.py:1')).toBe('…/etl/job.py:1');
  expect(shortFile('job.py')).toBe('job.py');
});
