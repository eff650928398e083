/**
 * Colours of frames: one for the user's code, one per large package, greys for other code, and three shades of each to separate neighbours. All
 * other colours of a page are in `style.css`.
 */
import { type Data, CUT } from './model/data.ts';
import { INTERPRETER, isInterpreter, USER } from './model/owners.ts';
import type { Tree } from './model/tree.ts';

export interface Palette {
  myCode: string;
  /** Packages. */
  modules: string[];
  otherModules: string;
  standardLibrary: string;
  importSystem: string;
  native: string;
  interpreter: string;
  nothing: string;
  cut: string;
  match: string;
  text: string;
  /** The text of frames that are out of focus. */
  faintText: string;
  /** Drawn over frames that are out of focus. */
  veil: string;
  /** Strips of frames that are too narrow to draw. */
  haze: string;
  edge: string;
  /** In a comparison, from a small to a complete change. */
  grown: string[];
  shrunk: string[];
}

const LIGHT: Palette = {
  myCode: '#86cbc1',
  modules: ['#f3c77a', '#a9c4ec', '#efaa98', '#c6b5ea', '#b3d69a', '#eab0cc', '#d8c79c', '#d9d08a'],
  otherModules: '#c9cfb9',
  standardLibrary: '#c3d0d6',
  importSystem: '#dde3e6',
  native: '#d9c3e8',
  interpreter: '#e4dcea',
  nothing: '#d3d7dd',
  cut: '#e7e5e0',
  match: '#c54589',
  text: '#14201f',
  faintText: '#6b787c',
  veil: 'rgba(255,255,255,0.62)',
  haze: '#d5dbdd',
  edge: '#0b5f57',
  grown: ['#f8ded9', '#f3bfb5', '#eb9585', '#e58272'],
  shrunk: ['#dcefdb', '#b8e0b7', '#8bcb8e', '#5eb366'],
};

const DARK: Palette = {
  myCode: '#22665f',
  modules: ['#73571d', '#385d8e', '#894938', '#644f98', '#43652f', '#844768', '#645b3b', '#5f5e25'],
  otherModules: '#54593f',
  standardLibrary: '#43525a',
  importSystem: '#333e43',
  native: '#5a4a6e',
  interpreter: '#433b4d',
  nothing: '#3c4247',
  cut: '#2c3133',
  match: '#b83a79',
  text: '#eef3f3',
  faintText: '#9aa7ab',
  veil: 'rgba(20,25,27,0.58)',
  haze: '#2e383c',
  edge: '#7ce3d5',
  grown: ['#40302d', '#5c3730', '#7a3c32', '#96382a'],
  shrunk: ['#2a382b', '#2f4a31', '#325b37', '#2a6832'],
};

export function palette(isDark: boolean): Palette {
  return isDark ? DARK : LIGHT;
}

/** Returns the colours of the owners of code, by their numbers. */
export function ownerColours(palette: Palette): string[] {
  return [palette.myCode, palette.modules[0]!, palette.standardLibrary, palette.importSystem, palette.otherModules];
}

export interface ColourClass {
  name: string;
  /** −1: not one of the large modules. */
  module: number;
  colour: (palette: Palette) => string;
}

/** Assigns frames to colour classes; frames of one class have the same colour. */
export interface Colouring {
  classes: ColourClass[];
  classOf: (tree: Tree, node: number) => number;
  /** See [`modulesOfNodes`]. */
  moduleOf: Int32Array;
}

/** The class of C, C++ and Rust functions. */
export const NATIVE = 'native functions';
const N_FIXED = 8;

/** Ranks modules by total allocations, so that a module keeps its colour in every view. */
export function colouring(data: Data): Colouring {
  const { module, import_system, library } = data.locations;
  const mine = new Set(module.filter((_, at) => data.ownerOf[at] === USER));
  const sums = new Map<number, number>();
  const { node, amounts, n } = data.own;
  const modules = modulesOfNodes(data);
  const { bytes } = amounts[data.head.measures.includes('total') ? 'total' : 'peak'];
  for (let entry = 0; entry < n; entry++) {
    const name = modules[node[entry]!]!;
    if (name >= 0) sums.set(name, (sums.get(name) ?? 0) + bytes[entry]!);
  }
  const largest = [...sums].sort((one, other) => other[1] - one[1]).slice(0, LIGHT.modules.length);
  const packages = largest.filter(([name]) => !mine.has(name)).map(([name]) => name);
  const classes: ColourClass[] = [
    { name: 'other modules', module: -1, colour: (palette) => palette.otherModules },
    { name: 'standard library', module: -1, colour: (palette) => palette.standardLibrary },
    { name: 'import system', module: -1, colour: (palette) => palette.importSystem },
    { name: 'no Python frame', module: -1, colour: (palette) => palette.nothing },
    { name: 'too small to show', module: -1, colour: (palette) => palette.cut },
    { name: NATIVE, module: -1, colour: (palette) => palette.native },
    { name: 'interpreter', module: -1, colour: (palette) => palette.interpreter },
    { name: 'my code', module: -1, colour: (palette) => palette.myCode },
    ...largest.map(([name]) => ({
      name: data.texts[name]!,
      module: name,
      colour: (palette: Palette) => (mine.has(name) ? palette.myCode : palette.modules[packages.indexOf(name)]!),
    })),
  ];
  const classOfModule = new Map(largest.map(([name], rank) => [name, rank + N_FIXED]));
  return {
    classes,
    moduleOf: modules,
    classOf: (tree, node) => {
      const key = tree.key[node]!;
      if (key === CUT) return 4;
      if (key < 0) return 3;
      if (library[key]! >= 0) return isInterpreter(data, key) ? 6 : 5;
      if (import_system[key]) return 2;
      // Arenas.
      if (data.ownerOf[key] === INTERPRETER) return 6;
      const name = module[key]!;
      return name < 0 ? 1 : (classOfModule.get(name) ?? (data.ownerOf[key] === USER ? 7 : 0));
    },
  };
}

/** Returns for each node the module of the innermost frame that has one; −1 if none does. */
export function modulesOfNodes(data: Data): Int32Array {
  const { n, parent, location } = data.nodes;
  const modules = new Int32Array(n).fill(-1);
  for (let node = 1; node < n; node++) {
    const at = location[node]!;
    // Arenas belong to the module that needed them.
    const own = at < 0 || data.ownerOf[at] === INTERPRETER ? -1 : data.locations.module[at]!;
    modules[node] = own < 0 ? modules[parent[node]!]! : own;
  }
  return modules;
}

/** Returns one of three shades of a colour. */
export function shade(colour: string, step: number): string {
  const factor = 1 + (step - 1) * 0.05;
  const part = (at: number) => Math.min(255, Math.round(parseInt(colour.slice(at, at + 2), 16) * factor));
  return `#${[1, 3, 5].map((at) => part(at).toString(16).padStart(2, '0')).join('')}`;
}
