/**
 * Builds the inverted tree: allocating functions first, their callers below. A node represents a group of source nodes, and
 * its children group the callers of these. Small groups are cut, because every allocation appears once per frame of its
 * stack.
 */
import { CUT, type Data, NO_FRAMES } from './data.ts';
import { BYTES, channelOf, COUNT, type TreeBuilder, keys, minShare, type NodeAmounts, OTHERS, type Shape } from './tree.ts';

interface Group {
  node: number;
  /** Source nodes of this group. */
  at: number[];
  /** Their amounts, one list per channel. */
  amounts: number[][];
}

export function buildInverted(data: Data, shape: Shape, own: NodeAmounts, builder: TreeBuilder, root: number): void {
  const { n, parent, location, nCut } = data.nodes;
  const keyOf = keys(data, shape);
  // For each source node: itself, or its nearest visible caller if it is hidden. 0 is the root.
  const shown = new Int32Array(n);
  for (let node = 1; node < n; node++) {
    shown[node] = keyOf(location[node]!) === undefined ? shown[parent[node]!]! : node;
  }
  const unit = channelOf(shape.unit);
  const empty = (node: number): Group => ({ node, at: [], amounts: own.map(() => []) });
  const first = empty(root);
  let all = 0;
  for (let node = 0; node < n; node++) {
    if (own[BYTES]![node] === 0 && own[COUNT]![node] === 0) continue;
    first.at.push(node);
    own.forEach((values, channel) => first.amounts[channel]!.push(values[node]!));
    all += own[unit]![node]!;
  }
  const least = all * minShare(data, shape);
  const waiting: Group[] = [first];
  for (let group = waiting.pop(); group; group = waiting.pop()) {
    const isFirst = group.node === root;
    for (const [key, found] of callers(group, isFirst)) {
      const size = sum(found.amounts[unit]!);
      if (size === 0) continue;
      const isSmall = size < least;
      const node = builder.child(group.node, isSmall ? CUT : key);
      if (isSmall) builder.nCut[node]! += found.at.length;
      else if (key === CUT) for (const at of found.at) builder.nCut[node]! += nCut[at]!;
      // Sums are added upwards from the end of a chain of callers, so amounts that end here are the node's own.
      if (isSmall) found.amounts.forEach((values, channel) => (builder.own[channel]![node]! += sum(values)));
      else waiting.push({ ...found, node });
    }
  }

  /** Groups the amounts of a node by caller. Amounts without a caller stay with the node. */
  function callers(group: Group, isFirst: boolean): Map<number, Group> {
    const groups = new Map<number, Group>();
    const positions = new Map<number, number>();
    for (let entry = 0; entry < group.at.length; entry++) {
      const from = group.at[entry]!;
      const at = isFirst ? shown[from]! : shown[parent[from]!]!;
      if (at === 0 && !isFirst) {
        group.amounts.forEach((values, channel) => (builder.own[channel]![group.node]! += values[entry]!));
        continue;
      }
      const key = at === 0 ? (shape.myCode ? OTHERS : NO_FRAMES) : keyOf(location[at]!)!;
      let found = groups.get(key);
      if (!found) groups.set(key, (found = empty(0)));
      const known = positions.get(at);
      if (known === undefined) {
        positions.set(at, found.at.length);
        found.at.push(at);
        group.amounts.forEach((values, channel) => found.amounts[channel]!.push(values[entry]!));
      } else {
        group.amounts.forEach((values, channel) => (found.amounts[channel]![known]! += values[entry]!));
      }
    }
    return groups;
  }
}

function sum(values: number[]): number {
  let all = 0;
  for (const value of values) all += value;
  return all;
}
