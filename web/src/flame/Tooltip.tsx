/** Tooltip and spoken description of a frame. */
import { useLayoutEffect, useRef } from 'preact/hooks';
import { amount, bytes, label, percent, plural, whole } from '../model/format.ts';
import { changeFacts } from '../diff/facts.ts';
import { shape } from '../state.ts';
import type { GraphState } from './graph-state.ts';

interface Facts {
  name: string;
  location: string;
  source: string;
  rows: [string, string][];
}

/** Returns the facts about a frame. */
export function facts(graph: GraphState, node: number): Facts {
  const { data } = graph;
  const tree = graph.tree.value;
  const { unit, merge, inverted } = shape.value;
  const { name, location } = label(data, tree, node, merge === 'line');
  const key = tree.key[node]!;
  const source = key >= 0 && merge === 'line' ? data.locations.source[key]! : '';
  if (tree.sides) return { name, location, source, rows: changeFacts(tree, node) };
  const library = key >= 0 ? data.locations.library[key]! : -1;
  const total = tree.total[unit][node]!;
  const caller = tree.total[unit][tree.parent[node]!]!;
  const size = (value: number) => (value >= 1000 ? `${bytes(value)} (${whole(value)} bytes)` : plural(value, 'byte'));
  const rows: [string, string][] = [['total', size(tree.total.bytes[node]!)]];
  // In an inverted tree, `own` has the amounts whose stacks end at the frame; see `buildInverted`.
  if (!inverted) rows.push(['own', size(tree.own.bytes[node]!)]);
  rows.push(['allocations', whole(tree.total.count[node]!)]);
  rows.push(['of the total', percent(total, tree.total[unit][0]!)]);
  if (node !== 0 && tree.parent[node] !== 0) {
    rows.push([inverted ? 'of its callee' : 'of its caller', percent(total, caller)]);
  }
  if (library >= 0) rows.push(['library', data.texts[library]!.replace(/.*\//, '')]);
  return { name, location, source, rows };
}

/** Returns the facts about a frame as a sentence, for screen readers. */
export function describe(graph: GraphState, node: number): string {
  const tree = graph.tree.value;
  const { name, location, rows } = facts(graph, node);
  if (tree.sides) return [name, location, ...rows.map(([what, value]) => `${what} ${value}`.trim())].filter(Boolean).join(', ');
  const [, ...others] = rows.map(([what, value]) => `${what} ${value}`);
  return [name, location, amount(tree.total.bytes[node]!, 'bytes'), ...others].filter(Boolean).join(', ');
}

export function Tooltip({ graph, node, x, y }: { graph: GraphState; node: number; x: number; y: number }) {
  const box = useRef<HTMLDivElement>(null);
  const { name, location, source, rows } = facts(graph, node);
  useLayoutEffect(() => {
    const { offsetWidth, offsetHeight } = box.current!;
    const left = Math.min(x + 14, innerWidth - offsetWidth - 8);
    const isBelow = y + 18 + offsetHeight < innerHeight;
    box.current!.style.left = `${Math.max(8, left)}px`;
    box.current!.style.top = `${Math.max(8, isBelow ? y + 18 : y - offsetHeight - 12)}px`;
  });
  return (
    <div class="tooltip" ref={box} role="tooltip">
      <strong>{name}</strong>
      {location && <span class="location">{location}</span>}
      {source && <code>{source}</code>}
      <dl>
        {rows.map(([what, value]) => (
          <div key={what}>
            <dt>{what}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
    </div>
  );
}

