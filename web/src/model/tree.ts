/**
 * The tree that is drawn: filtered, merged, split or inverted, with children in drawing order, largest first, and the
 * position of each node on the value axis.
 */
import { CUT, type Data, NO_FRAMES, passing, ROOT, type Unit } from './data.ts';
import { entryAmounts, isSided, type Selection } from './intervals.ts';
import { buildInverted } from './inverted.ts';
import { isInterpreter, USER } from './owners.ts';
import { type Sides, widths } from './sides.ts';

export interface Shape extends Selection {
  unit: Unit;
  inverted: boolean;
  merge: 'line' | 'function';
  hideImports: boolean;
  hideNative: boolean;
  /** Hide native functions of the interpreter. */
  hideInterpreter: boolean;
  /** Show only frames of the user's own code. */
  myCode: boolean;
  splitThreads: boolean;
  /** In a comparison: the amount that the width of a frame shows. */
  width: Width;
}

export type Width = 'change' | 'both' | 'after' | 'before';

/** The key of memory that no frame of the user's code allocated; only in a tree of the user's code. */
export const OTHERS = -4;
/** Keys at and below this are threads. */
export const THREADS = -1_000_000;

export interface Tree {
  n: number;
  /** Parents have smaller numbers; the root, 0, is its own parent. */
  parent: Int32Array;
  /** The meaning of the node: a location, ROOT, NO_FRAMES, CUT, OTHERS, or THREADS minus the number of a thread. */
  key: Int32Array;
  depth: Int32Array;
  nCut: Int32Array;
  /** Amounts with (`total`) and without (`own`) the descendants, in both units. */
  total: Record<Unit, Float64Array>;
  own: Record<Unit, Float64Array>;
  /** Position of the left edge of the node, in the chosen unit. */
  start: Float64Array;
  /** Children of node `i` are `children[firstChild[i] … firstChild[i + 1]]`. */
  firstChild: Int32Array;
  children: Int32Array;
  maxDepth: number;
  unit: Unit;
  /** Frames with a smaller share of the whole may be cut. */
  minShare: number;
  /** Only in a comparison, where `total` and `own` are widths. */
  sides: Sides | undefined;
}

/** Builds a tree; a node is always added after its parent. */
export class TreeBuilder {
  readonly parent: number[] = [0];
  readonly key: number[] = [ROOT];
  readonly nCut: number[] = [0];
  /** Amounts of the nodes themselves, one list per channel. */
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

  /** Returns the child with this key, and adds it if missing. */
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

/** Returns the key of a source node in the tree; `undefined` if the node is hidden and its caller gets its amounts. */
export function keys(data: Data, shape: Shape): (location: number) => number | undefined {
  const isHidden = hidden(data, shape);
  const merges = shape.merge === 'function';
  return (location) => {
    if (location < 0) return shape.myCode && location === NO_FRAMES ? undefined : location;
    if (isHidden(location)) return undefined;
    return merges ? data.functionOf[location]! : location;
  };
}

function hidden(data: Data, shape: Shape): (location: number) => boolean {
  const { import_system, library } = data.locations;
  const { myCode, hideImports, hideNative, hideInterpreter } = shape;
  return (location) =>
    (myCode && data.ownerOf[location] !== USER) ||
    (hideImports && import_system[location] === 1) ||
    (hideNative && library[location]! >= 0) ||
    (hideInterpreter && isInterpreter(data, location));
}

export function buildTree(data: Data, shape: Shape): Tree {
  const builder = new TreeBuilder(isSided(data, shape) ? N_CHANNELS : 2);
  if (shape.splitThreads) {
    const threads = new Set(data.origins.thread);
    for (const thread of [...threads].sort((one, other) => one - other)) {
      if (shape.thread >= 0 && shape.thread !== thread) continue;
      const amounts = ownAmounts(data, { ...shape, thread });
      if (!amounts[BYTES]!.some((value) => value > 0) && !amounts[COUNT]!.some((value) => value > 0)) continue;
      addNodes(data, shape, amounts, builder, builder.add(0, THREADS - thread));
    }
  } else {
    addNodes(data, shape, ownAmounts(data, shape), builder, 0);
  }
  return finish(builder, shape, minShare(data, shape));
}

/** In an inverted tree every allocation appears once per frame of its stack, so more is cut. */
export function minShare(data: Data, shape: Shape): number {
  return shape.inverted ? Math.max(data.head.min_share, 1e-4) : data.head.min_share;
}

function addNodes(data: Data, shape: Shape, amounts: NodeAmounts, builder: TreeBuilder, root: number): void {
  if (shape.inverted) buildInverted(data, shape, amounts, builder, root);
  else buildUpright(data, shape, amounts, builder, root);
}

/** Own allocations of each source node: one column per channel. */
export type NodeAmounts = Float64Array[];

/** Channels. In a comparison the first two are sums of both sides. */
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

/** Adds a selection to channels, which alternate between bytes and counts. */
function add(data: Data, selection: Selection, sums: NodeAmounts, channels: number[]): void {
  const passes = passing(data, selection);
  const { n, node, origin } = data.own;
  const { bytes, count, variance } = entryAmounts(data, selection);
  for (let entry = 0; entry < n; entry++) {
    if (!passes[origin[entry]!]) continue;
    const at = node[entry]!;
    channels.forEach((channel, index) => (sums[channel]![at]! += (index % 2 === 0 ? bytes : count)[entry]!));
    if (variance && sums.length > VARIANCE) sums[VARIANCE]![at]! += variance[entry]!;
  }
}

function buildUpright(data: Data, shape: Shape, own: NodeAmounts, builder: TreeBuilder, root: number): void {
  const { n, parent, location, nCut } = data.nodes;
  const below = own[channelOf(shape.unit)]!.slice();
  for (let node = n - 1; node > 0; node--) below[parent[node]!]! += below[node]!;
  const keyOf = keys(data, shape);
  // Without merging, no two source nodes share a tree node.
  const isHidden = hidden(data, shape);
  const merges = shape.merge === 'function' || data.locations.line.some((_, at) => isHidden(at));
  const builtNode = new Int32Array(n);
  builtNode[0] = root;
  for (let node = 0; node < n; node++) {
    if (node > 0) {
      const above = builtNode[parent[node]!]!;
      if (below[node] === 0) continue;
      const key = keyOf(location[node]!);
      builtNode[node] = key === undefined ? above : merges ? builder.child(above, key) : builder.add(above, key);
    }
    const at = shape.myCode && builtNode[node] === root && own.some((values) => values[node] !== 0) ? builder.child(root, OTHERS) : builtNode[node]!;
    for (let channel = 0; channel < own.length; channel++) builder.own[channel]![at]! += own[channel]![node]!;
    builder.nCut[at]! += nCut[node]!;
  }
}

/** Computes sums, order and positions. */
function finish(builder: TreeBuilder, shape: Shape, minShare: number): Tree {
  const { unit } = shape;
  const n = builder.parent.length;
  const parent = Int32Array.from(builder.parent);
  const key = Int32Array.from(builder.key);
  const withBelow = (values: Float64Array): Float64Array => {
    const sums = values.slice();
    for (let node = n - 1; node > 0; node--) sums[parent[node]!]! += sums[node]!;
    return sums;
  };
  const amounts = builder.own.map((values) => Float64Array.from(values));
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
  const nCut = Int32Array.from(builder.nCut);
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

/** Returns the keys from the root's child down to a node; they identify it in every tree of the same data. */
export function pathTo(tree: Tree, node: number): number[] {
  const path: number[] = [];
  for (let at = node; at !== 0; at = tree.parent[at]!) path.push(tree.key[at]!);
  return path.reverse();
}

/** Returns the node at the end of a path, or the deepest node on it that exists. */
export function follow(tree: Tree, path: number[], keyOf: (location: number) => number | undefined): number {
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

/** Minimum share of the trunk; its siblings are too small to matter. */
const TRUNK_SHARE = 0.95;

/** Returns the last frame of the chain that holds nearly everything: the tree branches below it. */
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
