/**
 * The tree that is looked at: filtered, merged, split or inverted, with children in the order in which they are drawn,
 * largest first, and each node's place on the value axis.
 */
import { CUT, type Data, NO_FRAMES, passing, ROOT, type Unit } from './data.ts';
import { entryAmounts, isSided, type Selection } from './intervals.ts';
import { growInverted } from './inverted.ts';
import { type Sides, widths } from './sides.ts';

export interface Shape extends Selection {
  unit: Unit;
  inverted: boolean;
  merge: 'line' | 'function';
  hideImports: boolean;
  hideNative: boolean;
  splitThreads: boolean;
  /** In a comparison: what makes a frame wide. */
  width: Width;
}

export type Width = 'change' | 'both' | 'after' | 'before';

/** Keys at and below this are threads. */
export const THREADS = -1_000_000;

export interface Tree {
  n: number;
  /** Parents have smaller numbers; the root, 0, is its own parent. */
  parent: Int32Array;
  /** What the node is: a location, ROOT, NO_FRAMES, CUT, or THREADS minus the number of a thread. */
  key: Int32Array;
  depth: Int32Array;
  nCut: Int32Array;
  /** Here and below, and here alone, in both units. */
  total: Record<Unit, Float64Array>;
  own: Record<Unit, Float64Array>;
  /** Where the node begins, in the unit that is looked at. */
  start: Float64Array;
  /** Children of node `i` are `children[firstChild[i] … firstChild[i + 1]]`. */
  firstChild: Int32Array;
  children: Int32Array;
  maxDepth: number;
  unit: Unit;
  /** Frames with a smaller share of all may be cut. */
  minShare: number;
  /** Only in a comparison; `total` and `own` are widths then. */
  sides: Sides | undefined;
}

/** A tree while it grows: nodes are only ever added behind their parents. */
export class Growing {
  readonly parent: number[] = [0];
  readonly key: number[] = [ROOT];
  readonly nCut: number[] = [0];
  /** What nodes hold themselves, a list for each channel. */
  readonly own: number[][];
  private readonly known = new Map<number, number>();

  constructor(nChannels: number) {
    this.own = Array.from({ length: nChannels }, () => [0]);
  }

  add(parent: number, key: number): number {
    this.parent.push(parent);
    this.key.push(key);
    this.nCut.push(0);
    for (const channel of this.own) channel.push(0);
    return this.parent.length - 1;
  }

  /** The child with this key, made if there is none. */
  child(parent: number, key: number): number {
    const name = parent * 2 ** 31 + (key + 2 ** 30);
    let node = this.known.get(name);
    if (node === undefined) {
      node = this.add(parent, key);
      this.known.set(name, node);
    }
    return node;
  }
}

/** What a source node is called in the tree; `undefined` if it is left out and its caller takes what it allocated. */
export function keys(data: Data, shape: Shape): (place: number) => number | undefined {
  const { import_system, library } = data.locations;
  const merges = shape.merge === 'function';
  return (place) => {
    if (place < 0) return place;
    if (shape.hideImports && import_system[place]) return undefined;
    if (shape.hideNative && library[place]! >= 0) return undefined;
    return merges ? data.functionOf[place]! : place;
  };
}

export function buildTree(data: Data, shape: Shape): Tree {
  const growing = new Growing(isSided(data, shape) ? N_CHANNELS : 2);
  if (shape.splitThreads) {
    const threads = new Set(data.origins.thread);
    for (const thread of [...threads].sort((one, other) => one - other)) {
      if (shape.thread >= 0 && shape.thread !== thread) continue;
      const amounts = ownAmounts(data, { ...shape, thread });
      if (!amounts[BYTES]!.some((value) => value > 0) && !amounts[COUNT]!.some((value) => value > 0)) continue;
      grow(data, shape, amounts, growing, growing.add(0, THREADS - thread));
    }
  } else {
    grow(data, shape, ownAmounts(data, shape), growing, 0);
  }
  return finish(growing, shape, minShare(data, shape));
}

/** Upside down every allocation has as many places as its stack is deep, so smaller ones are cut sooner. */
export function minShare(data: Data, shape: Shape): number {
  return shape.inverted ? Math.max(data.head.min_share, 1e-4) : data.head.min_share;
}

function grow(data: Data, shape: Shape, amounts: NodeAmounts, growing: Growing, root: number): void {
  if (shape.inverted) growInverted(data, shape, amounts, growing, root);
  else growUpright(data, shape, amounts, growing, root);
}

/** What each source node allocated itself: a column for each channel. */
export type NodeAmounts = Float64Array[];

/** Channels. In a comparison the first two are of both sides together. */
export const BYTES = 0;
export const COUNT = 1;
const BEFORE_BYTES = 2;
const BEFORE_COUNT = 3;
const VARIANCE = 4;
const N_CHANNELS = 5;

export function channelOf(unit: Unit): number {
  return unit === 'bytes' ? BYTES : COUNT;
}

function ownAmounts(data: Data, shape: Shape): NodeAmounts {
  const hasSides = isSided(data, shape);
  const sums = Array.from({ length: hasSides ? N_CHANNELS : 2 }, () => new Float64Array(data.nodes.n));
  if (!hasSides) {
    add(data, shape, sums, [BYTES, COUNT]);
  } else {
    add(data, { ...shape, side: 'before' }, sums, [BYTES, COUNT, BEFORE_BYTES, BEFORE_COUNT]);
    add(data, { ...shape, side: 'after' }, sums, [BYTES, COUNT]);
  }
  return sums;
}

/** Adds a selection to channels, which are bytes and counts in turn. */
function add(data: Data, selection: Selection, sums: NodeAmounts, channels: number[]): void {
  const passes = passing(data, selection);
  const { n, node, origin } = data.own;
  const { bytes, count, variance } = entryAmounts(data, selection);
  for (let entry = 0; entry < n; entry++) {
    if (!passes[origin[entry]!]) continue;
    const at = node[entry]!;
    for (let place = 0; place < channels.length; place++) sums[channels[place]!]![at]! += (place % 2 === 0 ? bytes : count)[entry]!;
    if (variance && sums.length > VARIANCE) sums[VARIANCE]![at]! += variance[entry]!;
  }
}

function growUpright(data: Data, shape: Shape, own: NodeAmounts, growing: Growing, root: number): void {
  const { n, parent, place, nCut } = data.nodes;
  const below = own[channelOf(shape.unit)]!.slice();
  for (let node = n - 1; node > 0; node--) below[parent[node]!]! += below[node]!;
  const keyOf = keys(data, shape);
  // Without merging, two source nodes never become one.
  const { import_system, library } = data.locations;
  const merges =
    shape.merge === 'function' ||
    (shape.hideImports && import_system.includes(1)) ||
    (shape.hideNative && library.some((name) => name >= 0));
  const standsFor = new Int32Array(n);
  standsFor[0] = root;
  for (let node = 0; node < n; node++) {
    if (node > 0) {
      const above = standsFor[parent[node]!]!;
      if (below[node] === 0) continue;
      const key = keyOf(place[node]!);
      standsFor[node] = key === undefined ? above : merges ? growing.child(above, key) : growing.add(above, key);
    }
    const at = standsFor[node]!;
    for (let channel = 0; channel < own.length; channel++) growing.own[channel]![at]! += own[channel]![node]!;
    growing.nCut[at]! += nCut[node]!;
  }
}

/** Sums, order and places. */
function finish(growing: Growing, shape: Shape, minShare: number): Tree {
  const { unit } = shape;
  const n = growing.parent.length;
  const parent = Int32Array.from(growing.parent);
  const key = Int32Array.from(growing.key);
  const withBelow = (values: Float64Array): Float64Array => {
    const sums = values.slice();
    for (let node = n - 1; node > 0; node--) sums[parent[node]!]! += sums[node]!;
    return sums;
  };
  const amounts = growing.own.map((values) => Float64Array.from(values));
  const sides = amounts.length === N_CHANNELS ? sidesOf(amounts, withBelow) : undefined;
  const own = sides ? widths(sides, shape.width) : { bytes: amounts[BYTES]!, count: amounts[COUNT]! };
  const total = { bytes: withBelow(own.bytes), count: withBelow(own.count) };
  const depth = new Int32Array(n);
  const firstChild = new Int32Array(n + 1);
  let maxDepth = 0;
  for (let node = 1; node < n; node++) {
    depth[node] = depth[parent[node]!]! + 1;
    maxDepth = Math.max(maxDepth, depth[node]!);
    firstChild[parent[node]! + 1]!++;
  }
  for (let node = 0; node < n; node++) firstChild[node + 1]! += firstChild[node]!;
  const children = new Int32Array(n - 1);
  const next = firstChild.slice();
  for (let node = 1; node < n; node++) children[next[parent[node]!]!++] = node;
  const size = total[unit];
  const start = new Float64Array(n);
  for (let node = 0; node < n; node++) {
    const mine = children.subarray(firstChild[node], firstChild[node + 1]);
    if (mine.length > 1) mine.sort((one, other) => size[other]! - size[one]! || one - other);
    let at = start[node]!;
    for (const child of mine) {
      start[child] = at;
      at += size[child]!;
    }
  }
  const nCut = Int32Array.from(growing.nCut);
  return { n, parent, key, depth, nCut, total, own, start, firstChild, children, maxDepth, unit, minShare, sides };
}

function sidesOf(amounts: NodeAmounts, withBelow: (values: Float64Array) => Float64Array): Sides {
  const less = (all: Float64Array, part: Float64Array) => all.map((value, node) => value - part[node]!);
  const before = { bytes: amounts[BEFORE_BYTES]!, count: amounts[BEFORE_COUNT]! };
  const after = { bytes: less(amounts[BYTES]!, before.bytes), count: less(amounts[COUNT]!, before.count) };
  const total = (own: Record<Unit, Float64Array>) => ({ bytes: withBelow(own.bytes), count: withBelow(own.count) });
  return {
    own: { before, after },
    total: { before: total(before), after: total(after) },
    variance: withBelow(amounts[VARIANCE]!),
  };
}

/** Keys from the root's child down to a node: its name in every tree of the same data. */
export function pathTo(tree: Tree, node: number): number[] {
  const path: number[] = [];
  for (let at = node; at !== 0; at = tree.parent[at]!) path.push(tree.key[at]!);
  return path.reverse();
}

/** The node at the end of a path, or the deepest one on the way to it. */
export function follow(tree: Tree, path: number[], keyOf: (place: number) => number | undefined): number {
  let node = 0;
  for (const step of path) {
    const key = keyOf(step);
    if (key === undefined) continue;
    const children = tree.children.subarray(tree.firstChild[node], tree.firstChild[node + 1]);
    const child = children.find((at) => tree.key[at] === key);
    if (child === undefined) return node;
    node = child;
  }
  return node;
}

export { CUT, NO_FRAMES, ROOT };

/** So much of all is the trunk's: what others have beside it is not what anyone looks for. */
const TRUNK_SHARE = 0.95;

/** The last of the frames that hold nearly everything, one below the other: from here on the tree has branches. */
export function trunkEnd(tree: Tree): number {
  const size = tree.total[tree.unit];
  let node = 0;
  for (;;) {
    const child = tree.children[tree.firstChild[node]!];
    const hasChild = tree.firstChild[node]! < tree.firstChild[node + 1]!;
    if (!hasChild || child === undefined || size[child]! < TRUNK_SHARE * size[0]!) return node;
    node = child;
  }
}
