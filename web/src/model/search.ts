/** Finding frames by a regular expression over function, file, line and module. */
import { CUT, type Data, NO_FRAMES, threadName } from './data.ts';
import { THREADS, type Tree } from './tree.ts';

export interface Found {
  /** For each node of the tree, whether it matches. */
  isMatch: Uint8Array;
  /** Whether it or one of its callers does. */
  isBelow: Uint8Array;
  nodes: number[];
  /** What matching frames and those below them hold, each counted once. */
  amount: number;
}

/** The expression, or `undefined` if it makes none. Lower case finds both; one capital letter makes case matter. */
export function expression(text: string): RegExp | undefined {
  try {
    return new RegExp(text, /\p{Lu}/u.test(text.replace(/\\./gu, '')) ? 'u' : 'iu');
  } catch {
    return undefined;
  }
}

/** What a search looks at. */
export function searched(data: Data, key: number): string {
  if (key <= THREADS) return threadName(data, THREADS - key);
  if (key === CUT || key === NO_FRAMES || key < 0) return '';
  const { locations, texts } = data;
  const module = locations.module[key]!;
  const place = `${texts[locations.function[key]!]} ${texts[locations.file[key]!]}:${locations.line[key]}`;
  return module < 0 ? place : `${place} ${texts[module]}`;
}

/** `values`: what is summed up; how wide frames are, unless something else is said. */
export function find(data: Data, tree: Tree, wanted: RegExp, values = tree.total[tree.unit]): Found {
  const known = new Map<number, boolean>();
  const isMatch = new Uint8Array(tree.n);
  const isBelow = new Uint8Array(tree.n);
  const nodes: number[] = [];
  let amount = 0;
  for (let node = 1; node < tree.n; node++) {
    const key = tree.key[node]!;
    let matches = known.get(key);
    if (matches === undefined) known.set(key, (matches = wanted.test(searched(data, key)) && searched(data, key) !== ''));
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
