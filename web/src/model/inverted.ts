/**
 * The tree upside down: who allocated comes first, and below it who called it. A node holds a list of source nodes that
 * have been reached by going up, with what came from each; its children group that list by the next caller. Small groups
 * are cut on the way, because every allocation has as many places here as its stack is deep.
 */
import { CUT, type Data, NO_FRAMES } from './data.ts';
import { BYTES, channelOf, COUNT, type Growing, keys, minShare, type NodeAmounts, type Shape } from './tree.ts';

interface Group {
  node: number;
  /** Source nodes, and what reached this group through each. */
  at: number[];
  /** A list for each channel. */
  amounts: number[][];
}

export function growInverted(data: Data, shape: Shape, own: NodeAmounts, growing: Growing, root: number): void {
  const { n, parent, place, nCut } = data.nodes;
  const keyOf = keys(data, shape);
  // The next source node upwards that is shown, itself included; 0 is the root.
  const shown = new Int32Array(n);
  for (let node = 1; node < n; node++) {
    shown[node] = keyOf(place[node]!) === undefined ? shown[parent[node]!]! : node;
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
      const node = growing.child(group.node, isSmall ? CUT : key);
      if (isSmall) growing.nCut[node]! += found.at.length;
      else if (key === CUT) for (const at of found.at) growing.nCut[node]! += nCut[at]!;
      // Sums go up from where a chain of callers ends, so all that ends here is this node's own; see below.
      if (isSmall) found.amounts.forEach((values, channel) => (growing.own[channel]![node]! += sum(values)));
      else waiting.push({ ...found, node });
    }
  }

  /** Groups what reached a node by who called it. What was called by nobody stays with the node. */
  function callers(group: Group, isFirst: boolean): Map<number, Group> {
    const groups = new Map<number, Group>();
    const places = new Map<number, number>();
    for (let entry = 0; entry < group.at.length; entry++) {
      const from = group.at[entry]!;
      const at = isFirst ? shown[from]! : shown[parent[from]!]!;
      if (at === 0 && !isFirst) {
        group.amounts.forEach((values, channel) => (growing.own[channel]![group.node]! += values[entry]!));
        continue;
      }
      const key = at === 0 ? NO_FRAMES : keyOf(place[at]!)!;
      let found = groups.get(key);
      if (!found) groups.set(key, (found = empty(0)));
      const known = places.get(at);
      if (known === undefined) {
        places.set(at, found.at.length);
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
