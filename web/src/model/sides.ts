/** Two sides in one tree: the size of each frame before and after, and its width. */
import type { Unit } from './data.ts';
import type { Tree, Width } from './tree.ts';

export interface Sides {
  /** Of the frame itself. */
  own: Record<'before' | 'after', Record<Unit, Float64Array>>;
  /** Of the frame and its descendants. */
  total: Record<'before' | 'after', Record<Unit, Float64Array>>;
  /** Variance of the bytes of both sides, including descendants, in square KiB. */
  variance: Float64Array;
}

/** Returns the own widths of frames, without their descendants. */
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
  /** Half the width of the 95% interval around a change in bytes; 0 without sampling. */
  error: number;
  /** Whether sampling alone explains the change. */
  isNoise: boolean;
}

/** Computes a change by the rule of `analysis::model::diff`. */
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

/** Returns the growth of each node. */
export function changes(tree: Tree): Float64Array {
  const { before, after } = tree.sides!.total;
  return after[tree.unit].map((now, node) => now - before[tree.unit][node]!);
}
