/** Colours of a comparison: red grew, green shrank, the stronger the larger the share that changed. */
import type { Colouring, Kind, Palette } from '../colours.ts';
import { changeAt } from '../model/sides.ts';

/** A frame whose change has at least this share of the larger side has this strength. */
const STEPS = [0.05, 0.25, 0.75];

const SAME = 0;
const NOISE = 1;
const GROWN = 2;
const SHRUNK = GROWN + STEPS.length + 1;

export function diffColouring(): Colouring {
  const kind = (name: string, colour: (palette: Palette) => string): Kind => ({ name, module: -1, colour });
  const steps = [...STEPS, 1].map((_, step) => step);
  const kinds = [
    kind('unchanged', (palette) => palette.importSystem),
    kind('within noise', (palette) => palette.cut),
    ...steps.map((step) => kind('grew', (palette) => palette.grown[step]!)),
    ...steps.map((step) => kind('shrank', (palette) => palette.shrunk[step]!)),
  ];
  return {
    kinds,
    moduleOf: new Int32Array(),
    kindOf: (tree, node) => {
      const { before, after, change, isNoise } = changeAt(tree, node);
      if (change === 0) return SAME;
      if (isNoise) return NOISE;
      const share = Math.abs(change) / Math.max(before, after);
      const step = STEPS.filter((least) => share >= least).length;
      return (change > 0 ? GROWN : SHRUNK) + step;
    },
  };
}
