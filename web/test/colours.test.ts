/** Tests that texts in a flame graph are readable on every colour of frames. */
import { expect, test } from 'vitest';
import { palette, shade } from '../src/colours.ts';
import { LOCATION_ALPHA, N_SHADES } from '../src/flame/paint.ts';

const parts = (colour: string) => [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
const luminance = (colour: number[]) => {
  const [red, green, blue] = colour.map((part) => (part / 255 <= 0.03928 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red! + 0.7152 * green! + 0.0722 * blue!;
};
/** The contrast of a text with its background, by WCAG 2. */
const contrast = (text: number[], ground: number[]) => {
  const [dark, light] = [luminance(text), luminance(ground)].sort((one, other) => one - other);
  return (light! + 0.05) / (dark! + 0.05);
};

for (const isDark of [false, true]) {
  test(`names and locations have a contrast of 4.5 on every frame, ${isDark ? 'dark' : 'light'}`, () => {
    const colours = palette(isDark);
    const { myCode, modules, grown, shrunk, otherModules, standardLibrary, importSystem, native, interpreter, nothing, cut } = colours;
    const frames = [myCode, ...modules, ...grown, ...shrunk, otherModules, standardLibrary, importSystem, native, interpreter, nothing, cut];
    for (const frame of frames) {
      for (let step = 0; step < N_SHADES; step++) {
        const ground = parts(shade(frame, step));
        const text = parts(colours.text).map((part, at) => part * LOCATION_ALPHA + ground[at]! * (1 - LOCATION_ALPHA));
        expect(contrast(text, ground), `${frame} ${step}`).toBeGreaterThanOrEqual(4.5);
      }
    }
    expect(contrast([255, 255, 255], parts(colours.match))).toBeGreaterThanOrEqual(4.5);
  });
}
