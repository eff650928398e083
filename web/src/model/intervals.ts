/** Selects blocks: by a measure of the whole run, or by a time interval. */
import type { Amounts, Data, Filter, Lives, Measure } from './data.ts';

/**
 * View of an interval: memory allocated in it and live at its end, all allocations in it, or the change of live memory from
 * its start to its end.
 */
export type IntervalView = 'kept' | 'allocated' | 'growth';

export interface Selection extends Filter {
  measure: Measure;
  /** Edges of the interval; −1 for the whole run. */
  from: number;
  to: number;
  kind: IntervalView;
}

export const WHOLE_RUN = { from: -1, to: -1, kind: 'kept' } as const;

/** Returns whether two sides are compared: two recordings, or two moments. */
export function isSided(data: Data, selection: Selection): boolean {
  return data.head.diff !== undefined || (selection.kind === 'growth' && hasInterval(data, selection));
}

export function hasInterval(data: Data, { from, to }: Selection): boolean {
  return data.lives !== undefined && from >= 0 && to > from;
}

/** Returns the selected amount of each own entry. For growth, `side` selects one of the two moments. */
export function entryAmounts(data: Data, selection: Selection): Amounts {
  const { lives } = data;
  if (!lives || !hasInterval(data, selection)) return data.own.amounts[selection.measure];
  const { from, to, kind, side } = selection;
  switch (kind) {
    case 'kept':
      return sumUp(data, lives, (birth, death) => birth >= from && birth < to && death >= to);
    case 'allocated':
      return sumUp(data, lives, (birth) => birth >= from && birth < to);
    case 'growth':
      return aliveAt(data, lives, side === 'before' ? from : to);
  }
}

/** Returns the live amounts at an edge. */
export function aliveAt(data: Data, lives: Lives, edge: number): Amounts {
  return sumUp(data, lives, (birth, death) => birth < edge && death >= edge);
}

function sumUp(data: Data, lives: Lives, counts: (birth: number, death: number) => boolean): Amounts {
  const bytes = new Float64Array(data.own.n);
  const count = new Float64Array(data.own.n);
  for (let at = 0; at < lives.own.length; at++) {
    if (!counts(lives.birth[at]!, lives.death[at]!)) continue;
    bytes[lives.own[at]!]! += lives.bytes[at]!;
    count[lives.own[at]!]! += lives.count[at]!;
  }
  return { bytes, count, variance: undefined };
}

/** Returns the edges closest to two times in nanoseconds, at least one bin apart. */
export function edgesAround(lives: Lives, oneNs: number, otherNs: number): { from: number; to: number } {
  const last = lives.edges.length - 1;
  const closest = (ns: number) => {
    let best = 0;
    lives.edges.forEach((edge, at) => {
      if (Math.abs(edge - ns) < Math.abs(lives.edges[best]! - ns)) best = at;
    });
    return best;
  };
  const from = Math.min(closest(Math.min(oneNs, otherNs)), last - 1);
  return { from, to: Math.max(closest(Math.max(oneNs, otherNs)), from + 1) };
}
