/** Legend of modules, with the share each allocated in the current view. A click searches for the module. */
import { computed } from '@preact/signals';
import { useMemo } from 'preact/hooks';
import { Group } from '../controls/Group.tsx';
import { NATIVE, palette } from '../colours.ts';
import { passing } from '../model/data.ts';
import { percent } from '../model/format.ts';
import { entryAmounts } from '../model/intervals.ts';
import { change, isDark, settings, shape } from '../state.ts';
import type { GraphState } from './graph-state.ts';

export function Legend({ graph }: { graph: GraphState }) {
  const { data, byModule: colouring } = graph;
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
    [graph],
  );
  const { sums, all } = shares.value;
  const colours = palette(isDark.value);
  const shown = colouring.classes.filter((colourClass) => colourClass.module >= 0 && (sums.get(colourClass.module) ?? 0) > 0);
  shown.sort((one, other) => sums.get(other.module)! - sums.get(one.module)!);
  const hasNative = data.locations.library.some((name) => name >= 0);
  const greys = colouring.classes.filter(
    (colourClass) => colourClass.name === 'standard library' || colourClass.name === 'import system' || (hasNative && [NATIVE, 'interpreter'].includes(colourClass.name)),
  );
  const pattern = (name: string) => `\\s${name.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')}$`;
  return (
    <footer class="legend">
      {shown.length > 0 && <span title="The innermost package of each stack; the standard library counts for its caller">allocated for</span>}
      <Group className="modules" label="Colours of modules">
      {shown.map((colourClass) => (
        <button
          key={colourClass.name}
          type="button"
          title={`Find frames of ${colourClass.name}; the share counts its own allocations and those through the standard library`}
          aria-pressed={settings.value.search === pattern(colourClass.name)}
          onClick={() => change({ search: settings.value.search === pattern(colourClass.name) ? '' : pattern(colourClass.name) })}
        >
          <i style={{ background: colourClass.colour(colours) }} />
          {colourClass.name} <small>{percent(sums.get(colourClass.module)!, all)}</small>
        </button>
      ))}
      </Group>
      {greys.map((colourClass) => (
        <span key={colourClass.name}>
          <i style={{ background: colourClass.colour(colours) }} />
          {colourClass.name}
        </span>
      ))}
      <span class="made">Heaptide {data.head.profiler}</span>
    </footer>
  );
}
