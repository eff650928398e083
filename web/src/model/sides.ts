/** Two recordings in one tree: what each frame held before and after, and how wide that makes it. */
import type { Unit } from './data.ts';
import type { Tree, Width } from './tree.ts';

export interface Sides {
  /** Here alone. */
  own: Record<'before' | 'after', Record<Unit, Float64Array>>;
  /** Here and below. */
  total: Record<'before' | 'after', Record<Unit, Float64Array>>;
  /** Of the bytes of both sides, here and below, in square KiB. */
  variance: Float64Array;
}

/** How wide frames are by themselves; what is below them comes on top. */
export function widths(sides: Sides, width: Width): Record<Unit, Float64Array> {
  const { before, after } = sides.own;
  const of = (unit: Unit) =>
    before[unit].map((old, node) => {
      const now = after[unit][node]!;
      switch (width) {
        case 'change':
          return Math.abs(now - old);
        case 'both':
          return Math.max(now, old);
        case 'after':
          return now;
        case 'before':
          return old;
      }
    });
  return { bytes: of('bytes'), count: of('count') };
}

export interface Change {
  before: number;
  after: number;
  change: number;
  /** Half the width of the 95 % interval around a change of bytes; 0 where nothing was sampled. */
  error: number;
  /** No larger than what sampling alone makes of two equal runs. */
  isNoise: boolean;
}

/** The same rule as in `analysis::model::diff`. */
export function changeOf(before: number, after: number, variance: number, unit: Unit): Change {
  const change = after - before;
  const error = 1.96 * Math.sqrt(variance) * 1024;
  const isNoise = unit === 'bytes' && error > 0 && Math.abs(change) <= error;
  return { before, after, change, error, isNoise };
}

export function changeAt(tree: Tree, node: number, unit: Unit = tree.unit): Change {
  const { total, variance } = tree.sides!;
  return changeOf(total.before[unit][node]!, total.after[unit][node]!, variance[node]!, unit);
}

/** By how much each node grew. */
export function changes(tree: Tree): Float64Array {
  const { before, after } = tree.sides!.total;
  return after[tree.unit].map((now, node) => now - before[tree.unit][node]!);
}
