/** Which blocks are looked at: those of a measure, or those of an interval of time. */
import type { Amounts, Data, Filter, Lives, Measure } from './data.ts';

/**
 * Of an interval: what was allocated in it and was still alive at its end, all that was allocated in it, or by how much
 * what was alive changed from its beginning to its end.
 */
export type Kind = 'kept' | 'allocated' | 'growth';

export interface Selection extends Filter {
  measure: Measure;
  /** Edges of the interval; −1 if the whole run is looked at. */
  from: number;
  to: number;
  kind: Kind;
}

export const WHOLE_RUN = { from: -1, to: -1, kind: 'kept' } as const;

/** Whether there are two sides to compare: two recordings, or two moments. */
export function isSided(data: Data, selection: Selection): boolean {
  return data.head.diff !== undefined || (selection.kind === 'growth' && hasInterval(data, selection));
}

export function hasInterval(data: Data, { from, to }: Selection): boolean {
  return data.lives !== undefined && from >= 0 && to > from;
}

/** What each own entry holds of the selection. In a growth, `side` says at which of its two moments. */
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

/** What was alive at an edge. */
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

/** The edges closest to two times, in nanoseconds; at least one bin apart. */
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
