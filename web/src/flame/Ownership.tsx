/** A bar with the share of memory that each owner's code allocated: mine, packages, standard library, interpreter, other. */
import { computed } from '@preact/signals';
import { useMemo } from 'preact/hooks';
import { ownerColours, palette } from '../colours.ts';
import { amount, percent } from '../model/format.ts';
import { OWNER_NAMES, ownershipOf } from '../model/owners.ts';
import { isDark, shape } from '../state.ts';
import type { GraphState } from './graph-state.ts';

export function Ownership({ graph }: { graph: GraphState }) {
  const sums = useMemo(() => {
    const ownership = ownershipOf(graph.data);
    return computed(() => ownership(shape.value, shape.value.unit));
  }, [graph]);
  const all = sums.value.reduce((sum, value) => sum + value, 0);
  if (all === 0) return null;
  const colours = ownerColours(palette(isDark.value));
  const parts = OWNER_NAMES.map((name, owner) => ({ name, owner, value: sums.value[owner]! })).filter(({ value }) => value > 0);
  return (
    <div class="ownership">
      <div class="shares" aria-hidden="true">
        {parts.map(({ name, owner, value }) => (
          <i key={name} style={{ width: `${(100 * value) / all}%`, background: colours[owner] }} />
        ))}
      </div>
      <ul aria-label="Who allocated">
        <li class="caption" aria-hidden="true">
          allocated in
        </li>
        {parts.map(({ name, owner, value }) => (
          <li
            key={name}
            data-owner={name}
            title={`${amount(value, shape.value.unit)} allocated by ${name}: the innermost frame of each stack decides`}
          >
            <i style={{ background: colours[owner] }} aria-hidden="true" />
            {name} <b>{percent(value, all)}</b>
          </li>
        ))}
      </ul>
    </div>
  );
}
