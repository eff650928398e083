/** Movement between frames with the keyboard. */
import type { Tree } from '../model/tree.ts';

/** Returns the node that an arrow key leads to from `node`, or −1. `isFirst`: no node is selected yet. */
export function move(tree: Tree, node: number, key: string, isFlame: boolean, isFirst = false): number {
  const isArrow = ['ArrowDown', 'ArrowUp', 'ArrowLeft', 'ArrowRight'].includes(key);
  if (!isArrow) return -1;
  if (isFirst) return node;
  const inwards = isFlame ? 'ArrowUp' : 'ArrowDown';
  const outwards = isFlame ? 'ArrowDown' : 'ArrowUp';
  if (key === outwards) return node === 0 ? -1 : tree.parent[node]!;
  if (key === inwards) {
    const first = tree.firstChild[node]!;
    const child = first < tree.firstChild[node + 1]! ? tree.children[first]! : -1;
    return child >= 0 && tree.total[tree.unit][child]! > 0 ? child : -1;
  }
  return node === 0 ? -1 : neighbour(tree, node, key === 'ArrowRight' ? 1 : -1);
}

/** Returns the next node in the same row. */
function neighbour(tree: Tree, node: number, step: number): number {
  const depth = tree.depth[node]!;
  // Up until there is a sibling on the wanted side, then down along its near edge.
  for (let at = node; at !== 0; at = tree.parent[at]!) {
    const parent = tree.parent[at]!;
    const first = tree.firstChild[parent]!;
    const end = tree.firstChild[parent + 1]!;
    const position = tree.children.indexOf(at, first);
    for (let next = position + step; next >= first && next < end; next += step) {
      const found = reach(tree, tree.children[next]!, depth, step);
      if (found >= 0) return found;
    }
  }
  return -1;
}

/** Returns the first descendant at a depth, from the side that `step` comes from. */
function reach(tree: Tree, from: number, depth: number, step: number): number {
  const waiting = [from];
  for (let node = waiting.pop(); node !== undefined; node = waiting.pop()) {
    if (tree.depth[node] === depth) return node;
    const children = [...tree.children.subarray(tree.firstChild[node], tree.firstChild[node + 1])];
    waiting.push(...(step > 0 ? children.reverse() : children));
  }
  return -1;
}
