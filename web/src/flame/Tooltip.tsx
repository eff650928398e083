/** Everything about one frame. */
import { useLayoutEffect, useRef } from 'preact/hooks';
import { amount, bytes, label, percent, plural, whole } from '../model/format.ts';
import { changeFacts } from '../diff/facts.ts';
import { shape } from '../state.ts';
import type { Session } from './session.ts';

interface Facts {
  name: string;
  place: string;
  source: string;
  rows: [string, string][];
}

/** What is known of a frame, in the words of the page. */
export function facts(session: Session, node: number): Facts {
  const { data } = session;
  const tree = session.tree.value;
  const { unit, merge, inverted } = shape.value;
  const { name, place } = label(data, tree, node, merge === 'line');
  const key = tree.key[node]!;
  const source = key >= 0 && merge === 'line' ? data.locations.source[key]! : '';
  if (tree.sides) return { name, place, source, rows: changeFacts(tree, node) };
  const library = key >= 0 ? data.locations.library[key]! : -1;
  const total = tree.total[unit][node]!;
  const caller = tree.total[unit][tree.parent[node]!]!;
  const size = (value: number) => (value >= 1000 ? `${bytes(value)} (${whole(value)} bytes)` : plural(value, 'byte'));
  const rows: [string, string][] = [['total', size(tree.total.bytes[node]!)]];
  // Upside down, only the first row allocated anything itself.
  if (!inverted) rows.push(['own', size(tree.own.bytes[node]!)]);
  rows.push(['allocations', whole(tree.total.count[node]!)]);
  rows.push(['of all', percent(total, tree.total[unit][0]!)]);
  if (node !== 0 && tree.parent[node] !== 0) {
    rows.push([inverted ? 'of what it called' : 'of its caller', percent(total, caller)]);
  }
  if (library >= 0) rows.push(['library', data.texts[library]!.replace(/.*\//, '')]);
  return { name, place, source, rows };
}

/** The same as a sentence, for those who listen. */
export function describe(session: Session, node: number): string {
  const tree = session.tree.value;
  const { name, place, rows } = facts(session, node);
  if (tree.sides) return [name, place, ...rows.map(([what, value]) => `${what} ${value}`.trim())].filter(Boolean).join(', ');
  const [, ...others] = rows.map(([what, value]) => `${what} ${value}`);
  return [name, place, amount(tree.total.bytes[node]!, 'bytes'), ...others].filter(Boolean).join(', ');
}

export function Tooltip({ session, node, x, y }: { session: Session; node: number; x: number; y: number }) {
  const box = useRef<HTMLDivElement>(null);
  const { name, place, source, rows } = facts(session, node);
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
      {place && <span class="place">{place}</span>}
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

