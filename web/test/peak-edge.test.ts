/** Tests the edge at the peak of a timeline. */
import { describe, expect, test } from 'vitest';
import { type Data, unpack } from '../src/model/data.ts';
import { aliveAt } from '../src/model/intervals.ts';
import { withPeakEdge } from '../src/timeline/peak-edge.ts';
import { PACKED } from './small-data.ts';

/**
 * Returns data with four bins of 10 ns and a peak of 1000 bytes. Entry 0 has 400 bytes at the peak: 10 bytes live from bin 0
 * to the end, the others live and die in the bin of the peak.
 */
function data(peak_ns: number | null): Data {
  const lives = {
    edges_ns: [0, 10, 20, 30, 40],
    step: [0, 0],
    birth: [0, 2],
    age: [4, 0],
    bytes: [10, 390],
    count: [1, 3],
  };
  const packed = { ...structuredClone(PACKED), lives };
  packed.head.peak_ns = peak_ns;
  return unpack(packed);
}

const alive = (of: Data, edge: number) => aliveAt(of, of.lives!, edge).bytes.reduce((sum, bytes) => sum + bytes, 0);

describe('the edge at the peak', () => {
  test('holds exactly the blocks of a spike that is shorter than a bin', () => {
    const { data: changed, peak } = withPeakEdge(data(24));
    expect(changed.lives!.edges).toEqual([0, 10, 20, 24, 30, 40]);
    expect(peak).toBe(3);
    expect(alive(changed, peak)).toBe(1000);
    expect([...aliveAt(changed, changed.lives!, peak).bytes].slice(0, 4)).toEqual([400, 100, 200, 50]);
    expect([...aliveAt(changed, changed.lives!, peak).count].slice(0, 4)).toEqual([4, 1, 2, 5]);
  });

  test('leaves the live blocks at all other edges unchanged', () => {
    for (const peak_ns of [0, 7, 20, 24, 29, 40, 99]) {
      const before = data(peak_ns);
      const { data: after, peak } = withPeakEdge(before);
      const sums = (of: Data) => of.lives!.edges.map((ns, edge) => [ns, alive(of, edge)]).filter(([ns]) => ns !== after.lives!.edges[peak]);
      expect(sums(after)).toEqual(sums(before));
      expect(alive(after, peak)).toBe(peak_ns > 40 ? 10 : 1000);
      expect(peak).toBeGreaterThan(0);
    }
  });

  test('is an existing edge if the peak is there', () => {
    const { data: changed, peak } = withPeakEdge(data(20));
    expect([changed.lives!.edges.length, peak]).toEqual([5, 2]);
  });

  test('is the highest existing edge if each process is at its own peak', () => {
    const before = data(null);
    const { data: after, peak } = withPeakEdge(before);
    expect(after).toBe(before);
    expect(alive(after, peak)).toBe(10);
  });
});
