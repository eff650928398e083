/** Which colour is which module, and how much each allocated itself in what is shown. A click searches for it. */
import { computed } from '@preact/signals';
import { useMemo } from 'preact/hooks';
import { NATIVE, palette } from '../colours.ts';
import { passing } from '../model/data.ts';
import { percent } from '../model/format.ts';
import { entryAmounts } from '../model/intervals.ts';
import { change, isDark, settings, shape } from '../state.ts';
import type { Session } from './session.ts';

export function Legend({ session }: { session: Session }) {
  const { data, byModule: colouring } = session;
  const shares = useMemo(
    () =>
      computed(() => {
        const passes = passing(data, shape.value);
        const { node, origin, n } = data.own;
        const values = entryAmounts(data, shape.value)[shape.value.unit];
        const sums = new Map<number, number>();
        let all = 0;
        for (let entry = 0; entry < n; entry++) {
          if (!passes[origin[entry]!] || values[entry] === 0) continue;
          const module = colouring.moduleOf[node[entry]!]!;
          sums.set(module, (sums.get(module) ?? 0) + values[entry]!);
          all += values[entry]!;
        }
        return { sums, all };
      }),
    [session],
  );
  const { sums, all } = shares.value;
  const colours = palette(isDark.value);
  const shown = colouring.kinds.filter((kind) => kind.module >= 0 && (sums.get(kind.module) ?? 0) > 0);
  shown.sort((one, other) => sums.get(other.module)! - sums.get(one.module)!);
  const hasNative = data.locations.library.some((name) => name >= 0);
  const greys = colouring.kinds.filter(
    (kind) => kind.name === 'standard library' || kind.name === 'import system' || (hasNative && kind.name === NATIVE),
  );
  const pattern = (name: string) => `\\s${name.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')}$`;
  return (
    <footer class="legend" aria-label="Colours">
      {shown.map((kind) => (
        <button
          key={kind.name}
          type="button"
          title={`Find frames of ${kind.name}; the share is what the module allocated by itself and through the standard library`}
          aria-pressed={settings.value.search === pattern(kind.name)}
          onClick={() => change({ search: settings.value.search === pattern(kind.name) ? '' : pattern(kind.name) })}
        >
          <i style={{ background: kind.colour(colours) }} />
          {kind.name} <small>{percent(sums.get(kind.module)!, all)}</small>
        </button>
      ))}
      {greys.map((kind) => (
        <span key={kind.name}>
          <i style={{ background: kind.colour(colours) }} />
          {kind.name}
        </span>
      ))}
      <span class="made">Heaptide {data.head.profiler}</span>
    </footer>
  );
}
