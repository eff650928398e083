/** Search for frames by a regular expression over function, file, line and module. */
import { CUT, type Data, NO_FRAMES, threadName } from './data.ts';
import { THREADS, type Tree } from './tree.ts';

export interface Matches {
  /** For each node of the tree, whether it matches. */
  isMatch: Uint8Array;
  /** Whether it or one of its callers does. */
  isBelow: Uint8Array;
  nodes: number[];
  /** Amount of matching frames and their descendants, each counted once. */
  amount: number;
}

/** Compiles an expression; `undefined` if it is invalid. One capital letter makes the search case-sensitive. */
export function expression(text: string): RegExp | undefined {
  try {
    return new RegExp(text, /\p{Lu}/u.test(text.replace(/\\./gu, '')) ? 'u' : 'iu');
  } catch {
    return undefined;
  }
}

/** Returns the text that a search compares. */
export function searched(data: Data, key: number): string {
  if (key <= THREADS) return threadName(data, THREADS - key);
  if (key === CUT || key === NO_FRAMES || key < 0) return '';
  const { locations, texts } = data;
  const module = locations.module[key]!;
  const location = `${texts[locations.function[key]!]} ${texts[locations.file[key]!]}:${locations.line[key]}`;
  return module < 0 ? location : `${location} ${texts[module]}`;
}

/**
 * Matches locations in slices, so that a page with hundreds of thousands of them stays responsive while the user types. The
 * result is complete when `step` returns true.
 */
export class Matching {
  /** For each location, whether it matches. */
  readonly isMatch: Uint8Array;
  private next = 0;

  constructor(
    private readonly data: Data,
    readonly wanted: RegExp,
  ) {
    this.isMatch = new Uint8Array(data.locations.line.length);
  }

  /** Continues for `ms` milliseconds; returns whether the search is complete. */
  step(ms: number, now: () => number = () => performance.now()): boolean {
    const end = now() + ms;
    while (this.next < this.isMatch.length) {
      const stop = Math.min(this.isMatch.length, this.next + SLICE);
      for (; this.next < stop; this.next++) {
        this.isMatch[this.next] = this.wanted.test(searched(this.data, this.next)) ? 1 : 0;
      }
      if (now() >= end) break;
    }
    return this.next === this.isMatch.length;
  }

  /** Returns whether a key of a tree matches. */
  matches(key: number): boolean {
    if (key >= 0) return this.isMatch[key] === 1;
    const text = searched(this.data, key);
    return text !== '' && this.wanted.test(text);
  }
}

/** Locations between two reads of the clock. */
const SLICE = 256;

/** Returns the matches in a tree. `values` are summed; by default the widths of frames. */
export function find(tree: Tree, matching: Matching, values = tree.total[tree.unit]): Matches {
  const isMatch = new Uint8Array(tree.n);
  const isBelow = new Uint8Array(tree.n);
  const nodes: number[] = [];
  let amount = 0;
  for (let node = 1; node < tree.n; node++) {
    const matches = matching.matches(tree.key[node]!);
    const isAlready = isBelow[tree.parent[node]!]!;
    if (matches) {
      isMatch[node] = 1;
      nodes.push(node);
      if (!isAlready) amount += values[node]!;
    }
    isBelow[node] = matches || isAlready ? 1 : 0;
  }
  return { isMatch, isBelow, nodes, amount };
}
