/** Tests the call tree that flame graphs are drawn from. */
import { describe, expect, test } from 'vitest';
import { colouring } from '../src/colours.ts';
import { CUT, type Data, NO_FRAMES } from '../src/model/data.ts';
import { label } from '../src/model/format.ts';
import { expression, find, Matching } from '../src/model/search.ts';
import { ownershipOf } from '../src/model/owners.ts';
import { buildTree, follow, keys, pathTo, type Shape, type Tree } from '../src/model/tree.ts';
import { move } from '../src/flame/steps.ts';
import { smallData } from './small-data.ts';

const SHAPE: Shape = {
  measure: 'peak',
  from: -1,
  to: -1,
  kind: 'kept',
  unit: 'bytes',
  process: -1,
  thread: -1,
  inverted: false,
  merge: 'line',
  hideImports: false,
  hideNative: false,
  hideInterpreter: false,
  myCode: false,
  splitThreads: false,
  width: 'change',
};

/** Returns the tree as text: one line per node, indented by depth, in drawing order. */
function drawn(data: Data, tree: Tree, byLine = true): string[] {
  const lines: string[] = [];
  const visit = (node: number) => {
    const { name, location } = label(data, tree, node, byLine);
    const line = /:\d+$/.exec(location)?.[0] ?? '';
    lines.push(`${'  '.repeat(tree.depth[node]!)}${name}${line} ${tree.total[tree.unit][node]} at ${tree.start[node]}`);
    for (const child of tree.children.subarray(tree.firstChild[node], tree.firstChild[node + 1])) visit(child);
  };
  visit(0);
  return lines;
}

const check = (shape: Partial<Shape>, data: Data = smallData()): string[] =>
  drawn(data, buildTree(data, { ...SHAPE, ...shape }), shape.merge !== 'function');

describe('the tree', () => {
  test('has the largest child first and every child within its parent', () => {
    expect(check({})).toEqual([
      'all 1000 at 0',
      '  <module>:10 900 at 0',
      '    load:20 500 at 0',
      '      parse:5 500 at 0',
      '    load:21 250 at 500',
      '      parse:5 250 at 500',
      '        … 7 frames below 0.1% 50 at 500',
      '    _find_and_load:1 150 at 750',
      '      parse:5 150 at 750',
      '  no Python frame 100 at 900',
    ]);
  });

  test('merges lines of one function when asked', () => {
    expect(check({ merge: 'function' }).slice(2, 5)).toEqual([
      '    load 750 at 0',
      '      parse 750 at 0',
      '        … 7 frames below 0.1% 50 at 0',
    ]);
  });

  test('adds the memory of hidden import frames to their caller', () => {
    expect(check({ hideImports: true })).not.toContain('    _find_and_load:1 150 at 750');
    expect(check({ hideImports: true })).toContain('    parse:5 150 at 750');
  });

  test('folds frames of others into the frame of my code that called them', () => {
    const mine = [
      'all 1000 at 0',
      '  <module>:10 900 at 0',
      '    load:20 500 at 0',
      '    load:21 250 at 500',
      '      … 7 frames below 0.1% 50 at 500',
      '  no frame of my code 100 at 900',
    ];
    expect(check({ myCode: true })).toEqual(mine);
    expect(check({ myCode: true, inverted: true })).toContain('  load:20 500 at 0');
  });

  test('keeps the sum when the callers of my code are those of others', () => {
    const data = smallData();
    // The outermost frame is a launcher; `load` is mine.
    data.ownerOf.set([1, 0, 0, 1, 3]);
    expect(check({ myCode: true }, data)).toEqual([
      'all 1000 at 0',
      '  load:20 500 at 0',
      '  load:21 250 at 500',
      '    … 7 frames below 0.1% 50 at 500',
      '  no frame of my code 250 at 750',
    ]);
  });

  test('adds the memory of native interpreter frames to their caller, and of no other native frame', () => {
    const data = smallData();
    // `load` on line 20 is a function of the interpreter, `parse` one of a native package.
    data.locations.library = [-1, 4, -1, 5, -1];
    data.ownerOf.set([0, 3, 0, 1, 3]);
    const shown = check({ hideInterpreter: true }, data);
    expect(shown.some((line) => line.includes('load:20'))).toBe(false);
    expect(shown).toContain('    parse:5 500 at 0');
  });

  test('charges the interpreter only for what it allocated for no one', () => {
    const data = smallData();
    const shares = () => ownershipOf(data)(SHAPE, 'bytes');
    expect(shares()).toEqual([0, 900, 0, 100, 0]);
    // `parse` becomes a native function of the interpreter, which works for its callers.
    data.locations.library = [-1, -1, -1, 5, -1];
    data.ownerOf.set([0, 0, 2, 3, 3]);
    expect(shares()).toEqual([500, 0, 250, 250, 0]);
  });

  test('adds the memory of hidden native frames to their caller, and merges frames that become equal', () => {
    const data = smallData();
    const shown = check({}, data);
    // Makes `load` a native function on both lines, so that `parse` becomes a child of its caller.
    data.locations.library = [-1, 4, 4, -1, -1];
    expect(check({}, data)).toEqual(shown);
    const hidden = check({ hideNative: true }, data);
    expect(hidden.some((line) => line.includes('load:2'))).toBe(false);
    expect(hidden.filter((line) => line.startsWith('    parse:5'))).toHaveLength(1);
    expect(hidden[0]).toBe(shown[0]);
  });

  test('shows one thread when asked, and splits by thread when asked', () => {
    expect(check({ thread: 1 })).toEqual([
      'all 200 at 0',
      '  <module>:10 100 at 0',
      '    load:20 100 at 0',
      '      parse:5 100 at 0',
      '  no Python frame 100 at 100',
    ]);
    const split = check({ splitThreads: true });
    expect(split[1]).toBe('  MainThread 800 at 0');
    expect(split).toContain('  thread 2 200 at 800');
  });

  test('when inverted, begins with the allocating functions and keeps the total', () => {
    const lines = check({ inverted: true });
    expect(lines[0]).toBe('all 1000 at 0');
    expect(lines[1]).toBe('  parse:5 850 at 0');
    expect(lines.slice(2, 4)).toEqual(['    load:20 500 at 0', '      <module>:10 500 at 0']);
  });

  test('counts allocations when asked, and shows leaked memory', () => {
    expect(check({ unit: 'count' })[0]).toBe('all 16 at 0');
    expect(check({ measure: 'leaked' })).toEqual([
      'all 10 at 0',
      '  <module>:10 10 at 0',
      '    load:21 10 at 0',
      '      parse:5 10 at 0',
    ]);
  });

  test('follows a path in another tree as far as the path exists there', () => {
    const data = smallData();
    const tree = buildTree(data, SHAPE);
    const node = tree.key.indexOf(CUT);
    const path = pathTo(tree, node);
    expect(follow(tree, path, keys(data, SHAPE))).toBe(node);
    const leaked = buildTree(data, { ...SHAPE, measure: 'leaked' });
    expect(pathTo(leaked, follow(leaked, path, keys(data, SHAPE)))).toEqual(path.slice(0, 3));
  });
});

function matchesOf(data: Data, tree: Tree, wanted: RegExp) {
  const matching = new Matching(data, wanted);
  while (!matching.step(1000)) continue;
  return find(tree, matching);
}

describe('a search', () => {
  test('can run in slices', () => {
    const data = smallData();
    // The clock is past the end after every slice, so each step runs one; this data fits in one slice.
    let now = 0;
    const matching = new Matching(data, expression('^load')!);
    expect(matching.step(0, () => now++)).toBe(true);
    expect([...matching.isMatch]).toEqual([0, 1, 1, 0, 0]);
  });

  test('counts a match below another match once', () => {
    const data = smallData();
    const tree = buildTree(data, SHAPE);
    const sum = matchesOf(data, tree, expression('load|parse')!);
    expect(sum.nodes.length).toBe(6);
    expect(sum.amount).toBe(900);
  });

  test('also matches files and modules, and is case-sensitive if it contains a capital', () => {
    const data = smallData();
    const tree = buildTree(data, SHAPE);
    expect(matchesOf(data, tree, expression('lib\\.py:5')!).nodes.length).toBe(3);
    expect(matchesOf(data, tree, expression('PARSE')!).nodes.length).toBe(0);
    expect(expression('(')).toBeUndefined();
  });
});

describe('arrow keys', () => {
  test('move inwards, outwards and along a row', () => {
    const data = smallData();
    const tree = buildTree(data, SHAPE);
    const name = (node: number) => label(data, tree, node, false).name;
    const module = move(tree, 0, 'ArrowDown', false);
    expect(name(module)).toBe('<module>');
    expect(tree.key[move(tree, module, 'ArrowRight', false)]).toBe(NO_FRAMES);
    const load = move(tree, module, 'ArrowDown', false);
    const parse = move(tree, load, 'ArrowDown', false);
    const next = move(tree, parse, 'ArrowRight', false);
    expect(name(next)).toBe('parse');
    expect(tree.start[next]).toBe(500);
    expect(move(tree, next, 'ArrowLeft', false)).toBe(parse);
    expect(move(tree, load, 'ArrowUp', false)).toBe(module);
    expect(move(tree, module, 'ArrowUp', true)).toBe(load);
  });
});

test('arenas have the colour of the interpreter and count for the module that needed them', () => {
  const data = smallData();
  data.ownerOf.set([0, 0, 0, 3, 3]);
  const { classes, classOf, moduleOf } = colouring(data);
  const tree = buildTree(data, SHAPE);
  const arena = tree.key.indexOf(3);
  expect(classes[classOf(tree, arena)]!.name).toBe('interpreter');
  expect(data.texts[moduleOf[3]!]).toBe('job');
});
