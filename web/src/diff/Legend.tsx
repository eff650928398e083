/** Legend of the colours of a comparison. */
import { palette } from '../colours.ts';
import type { Data } from '../model/data.ts';
import { isDark } from '../state.ts';

export function DiffLegend({ data }: { data: Data }) {
  const colours = palette(isDark.value);
  const { diff } = data.head;
  const isSampled = diff && (diff.before.sampled_every_bytes ?? diff.after.sampled_every_bytes) !== null;
  const scale = (text: string, steps: string[]) => (
    <span>
      {steps.map((colour) => (
        <i key={colour} style={{ background: colour }} />
      ))}
      {text}
    </span>
  );
  return (
    <footer class="legend" aria-label="Colours">
      {scale('grew: by less than 5%, 25%, 75%, more', colours.grown)}
      {scale('shrank', colours.shrunk)}
      {scale('unchanged', [colours.importSystem])}
      {isSampled && scale('within the noise of sampling', [colours.cut])}
      <span class="made">Heaptide {data.head.profiler}</span>
    </footer>
  );
}
