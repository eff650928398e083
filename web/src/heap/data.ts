/** What the page about a heap knows, as `report::json::explore` writes it, and small questions about it. */

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
  host: string;
  python: string;
  taken: string;
  stood_still_ns: number;
  count: number;
  bytes: number;
  unreachable_count: number;
  unreachable_bytes: number;
  has_stacks: boolean;
  warnings: string[];
  suspects: Suspect[];
  /** What nothing but roots holds, the largest first; there are more of them. */
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
  /** The largest of them, by what they retain. */
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
    /** Number and text by turns. */
    referrers: (number | string)[][];
    is_new: number[];
    is_reachable: number[];
    stack: number[];
  };
  stacks: { number: number; frames: Frame[] }[];
}

/** Reads the data inside this document. */
export async function heapOfPage(): Promise<HeapData> {
  const text = document.getElementById('data')?.textContent?.trim() ?? '';
  if (!text || text.startsWith('HEAPTIDE')) throw new Error('this page holds no data: make it with heaptide heap explore');
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate-raw'));
  const data = (await new Response(stream).json()) as HeapData;
  if (data.head.format !== 1) throw new Error(`this page cannot read data of format ${data.head.format}`);
  return data;
}

/** Who refers to an object, and how. */
export function referrersOf(data: HeapData, object: number): [number, string][] {
  const flat = data.objects.referrers[object] ?? [];
  const pairs: [number, string][] = [];
  for (let at = 0; at + 1 < flat.length; at += 2) pairs.push([flat[at] as number, flat[at + 1] as string]);
  return pairs;
}

/** The shortest way from a root to an object, the root first. */
export function wayTo(data: HeapData, object: number): number[] {
  const way = [];
  for (let at = object; at >= 0; at = data.objects.before[at]!) way.push(at);
  return way.reverse();
}

/** The way as one expression, as Python would write it. */
export function expressionOf(data: HeapData, object: number): string {
  return wayTo(data, object)
    .map((at) => data.objects.via[at]!)
    .reduce((text, step) => (step.startsWith('list(_)') ? `list(${text})${step.slice(7)}` : text + step), '');
}

/** From the top of the dominator tree down to an object, without it. */
export function dominatorsOf(data: HeapData, object: number): number[] {
  const chain = [];
  for (let at = data.objects.dominator[object]!; at >= 0; at = data.objects.dominator[at]!) chain.push(at);
  return chain.reverse();
}

/** For each object those that it dominates directly and that are in the page, the largest first. */
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

/** The object with an address; −1 if the page does not have it. */
export function find(data: HeapData, address: string): number {
  return address === '' ? -1 : data.objects.address.indexOf(address);
}
