/** Tests the views of a time interval: memory kept, memory allocated, and growth. */
import { describe, expect, test } from 'vitest';
import { type Data, unpack } from '../src/model/data.ts';
import { aliveAt, edgesAround, entryAmounts, type IntervalView } from '../src/model/intervals.ts';
import { PACKED } from './small-data.ts';

/**
 * Returns data with four bins. Entry 0: 10 bytes allocated in bin 0 and never freed, 20 bytes allocated in bin 1 and freed
 * in bin 2. Entry 3: 40 bytes allocated and freed in bin 1.
 */
function data(): Data {
  const lives = {
    edges_ns: [0, 10, 20, 30, 40],
    step: [0, 0, 3],
    birth: [0, 1, 1],
    age: [4, 1, 0],
    bytes: [10, 20, 40],
    count: [1, 2, 3],
  };
  return unpack({ ...structuredClone(PACKED), lives });
}

const held = (kind: IntervalView, from: number, to: number, side?: 'before' | 'after') =>
  [...entryAmounts(data(), { measure: 'peak', process: -1, thread: -1, kind, from, to, side }).bytes].slice(0, 4);

describe('an interval', () => {
  test('shows memory that was allocated in it and is live at its end', () => {
    expect(held('kept', 0, 4)).toEqual([10, 0, 0, 0]);
    expect(held('kept', 1, 2)).toEqual([20, 0, 0, 0]);
    expect(held('kept', 1, 3)).toEqual([0, 0, 0, 0]);
    expect(held('kept', 2, 4)).toEqual([0, 0, 0, 0]);
  });

  test('shows all memory that was allocated in it', () => {
    expect(held('allocated', 1, 2)).toEqual([20, 0, 0, 40]);
    expect(held('allocated', 0, 1)).toEqual([10, 0, 0, 0]);
  });

  test('compares live memory at its start and end', () => {
    expect(held('growth', 1, 2, 'before')).toEqual([10, 0, 0, 0]);
    expect(held('growth', 1, 2, 'after')).toEqual([30, 0, 0, 0]);
    expect(aliveAt(data(), data().lives!, 0).bytes[0]).toBe(0);
    expect(aliveAt(data(), data().lives!, 4).bytes[0]).toBe(10);
  });

  test('without edges, shows the measure of the whole run', () => {
    expect(held('kept', -1, -1)).toEqual([400, 100, 200, 50]);
  });

  test('snaps to the closest edges and is never empty', () => {
    const lives = data().lives!;
    expect(edgesAround(lives, 4, 26)).toEqual({ from: 0, to: 3 });
    expect(edgesAround(lives, 26, 4)).toEqual({ from: 0, to: 3 });
    expect(edgesAround(lives, 19, 21)).toEqual({ from: 2, to: 3 });
    expect(edgesAround(lives, 100, 100)).toEqual({ from: 3, to: 4 });
  });
});
