/** Rows of the tooltip of a frame in a comparison. */
import { amount, bytes, changePercent, signed, whole } from '../model/format.ts';
import { changeAt, changeOf } from '../model/sides.ts';
import type { Tree } from '../model/tree.ts';

export function changeFacts(tree: Tree, node: number): [string, string][] {
  const total = changeAt(tree, node, 'bytes');
  const { before, after } = tree.sides!.total;
  const own = tree.sides!.own;
  const ownChange = changeOf(own.before.bytes[node]!, own.after.bytes[node]!, 0, 'bytes').change;
  const noise = total.error > 0 ? ` ± ${bytes(total.error)}` : '';
  const rows: [string, string][] = [
    ['change', `${signed(total.change, 'bytes')}${noise} (${changePercent(total.before, total.change)})`],
    ['before', `${bytes(total.before)} (${whole(total.before)} bytes)`],
    ['after', `${bytes(total.after)} (${whole(total.after)} bytes)`],
    ['own change', signed(ownChange, 'bytes')],
    ['blocks', `${amount(before.count[node]!, 'count')} → ${amount(after.count[node]!, 'count')}`],
  ];
  if (total.isNoise) rows.push(['', 'within the noise of sampling']);
  return rows;
}
