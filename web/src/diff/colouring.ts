/** Colours of a comparison: red for growth, green for shrinkage, stronger for a larger share. */
import type { Colouring, ColourClass, Palette } from '../colours.ts';
import { changeAt } from '../model/sides.ts';

/** Minimum share of the larger side for each strength of colour. */
const STEPS = [0.05, 0.25, 0.75];

const SAME = 0;
const NOISE = 1;
const GROWN = 2;
const SHRUNK = GROWN + STEPS.length + 1;

export function diffColouring(): Colouring {
  const colourClass = (name: string, colour: (palette: Palette) => string): ColourClass => ({ name, module: -1, colour });
  const steps = [...STEPS, 1].map((_, step) => step);
  const classes = [
    colourClass('unchanged', (palette) => palette.importSystem),
    colourClass('within noise', (palette) => palette.cut),
    ...steps.map((step) => colourClass('grew', (palette) => palette.grown[step]!)),
    ...steps.map((step) => colourClass('shrank', (palette) => palette.shrunk[step]!)),
  ];
  return {
    classes,
    moduleOf: new Int32Array(),
    classOf: (tree, node) => {
      const { before, after, change, isNoise } = changeAt(tree, node);
      if (change === 0) return SAME;
      if (isNoise) return NOISE;
      const share = Math.abs(change) / Math.max(before, after);
      const step = STEPS.filter((least) => share >= least).length;
      return (change > 0 ? GROWN : SHRUNK) + step;
    },
  };
}
