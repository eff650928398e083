/** The data of the heap page, as `report::json::explore` writes it, and queries on it. */

export interface Suspect {
  what: string;
  evidence: string[];
  advice: string;
  bytes: number;
  object: number | null;
}

export interface Head {
  format: number;
  file: string;
  command_line: string;
  pid: number;
  /** The role or program of the process, its labels and its run. */
  title?: string;
  labels?: Record<string, string>;
  run?: string | null;
  host: string;
  python: string;
  taken: string;
  paused_ns: number;
  count: number;
  bytes: number;
  unreachable_count: number;
  unreachable_bytes: number;
  has_stacks: boolean;
  warnings: string[];
  suspects: Suspect[];
  /** Objects dominated only by roots, the largest first; `num_tops` counts all. */
  tops: number[];
  num_tops: number;
  /** Only in a comparison. */
  before?: { count: number; bytes: number; same_process: boolean; num_new: number; num_gone: number };
}

export interface Kind {
  label: string;
  count: number;
  bytes: number;
  retained: number;
  /** The largest objects by retained size. */
  objects: number[];
  before_count?: number;
  before_bytes?: number;
  new?: number;
  gone?: number;
}

export interface Frame {
  function: string;
  file: string;
  line: number;
}

export interface HeapData {
  head: Head;
  kinds: Kind[];
  objects: {
    kind: number[];
    address: string[];
    name: string[];
    bytes: number[];
    retained: number[];
    dominator: number[];
    children: number[];
    before: number[];
    via: string[];
    num_referrers: number[];
    /** The numbers of referring objects and the names of their references, alternating. */
    referrers: (number | string)[][];
    is_new: number[];
    is_reachable: number[];
    stack: number[];
  };
  stacks: { number: number; frames: Frame[] }[];
}

/** Returns the referrers of an object and the names of their references. */
export function referrersOf(data: HeapData, object: number): [number, string][] {
  const flat = data.objects.referrers[object] ?? [];
  const pairs: [number, string][] = [];
  for (let at = 0; at + 1 < flat.length; at += 2) pairs.push([flat[at] as number, flat[at + 1] as string]);
  return pairs;
}

/** Returns the shortest path from a root to an object, the root first. */
export function pathTo(data: HeapData, object: number): number[] {
  const path = [];
  for (let at = object; at >= 0; at = data.objects.before[at]!) path.push(at);
  return path.reverse();
}

/** Returns the path as one Python expression. */
export function expressionOf(data: HeapData, object: number): string {
  return pathTo(data, object)
    .map((at) => data.objects.via[at]!)
    .reduce((text, step) => (step.startsWith('list(_)') ? `list(${text})${step.slice(7)}` : text + step), '');
}

/** Returns the path in a short form that readers know: `__main__._cache[…]` for an item of a dict in a module. */
export function shortPathOf(data: HeapData, object: number): string {
  if (!data.objects.is_reachable[object]) return '';
  return expressionOf(data, object)
    .replace(/sys\.modules\['([^']+)'\]/, '$1')
    .replace(/\.__dict__\['([\p{L}_][\p{L}\p{N}_]*)'\]/gu, '.$1')
    .replace(/\.(?:values|keys)\(\)\[\d+\]/g, '[…]');
}

/** Returns the dominators of an object, from the top of the tree down. */
export function dominatorsOf(data: HeapData, object: number): number[] {
  const chain = [];
  for (let at = data.objects.dominator[object]!; at >= 0; at = data.objects.dominator[at]!) chain.push(at);
  return chain.reverse();
}

/** Returns for each object its direct children in the dominator tree that the page contains, the largest first. */
export function childrenOf(data: HeapData): Map<number, number[]> {
  const children = new Map<number, number[]>();
  data.objects.dominator.forEach((dominator, object) => {
    if (dominator < 0) return;
    const known = children.get(dominator);
    if (known) known.push(object);
    else children.set(dominator, [object]);
  });
  for (const own of children.values()) own.sort((a, b) => data.objects.retained[b]! - data.objects.retained[a]! || a - b);
  return children;
}

export function kindOf(data: HeapData, object: number): string {
  return data.kinds[data.objects.kind[object]!]?.label ?? '';
}

export function stackOf(data: HeapData, object: number): Frame[] {
  const number = data.objects.stack[object]!;
  return data.stacks.find((stack) => stack.number === number)?.frames ?? [];
}

/** Returns the object with an address; −1 if the page lacks it. */
export function find(data: HeapData, address: string): number {
  return address === '' ? -1 : data.objects.address.indexOf(address);
}
