/** Who wrote the code of a frame: the user, a package, Python's standard library, the interpreter, or somebody else. */
import { type Data, NO_FRAMES, type Packed, passing } from './data.ts';
import { entryAmounts, type Selection } from './intervals.ts';

export const USER = 0;
export const PACKAGE = 1;
export const STANDARD_LIBRARY = 2;
export const INTERPRETER = 3;
/** Code in none of the known folders. */
export const OTHER = 4;

export const OWNER_NAMES = ['my code', 'site-packages', 'standard library', 'interpreter', 'other'] as const;

/** Returns the owner of each location. A native function belongs to the owner of its library. */
export function ownersOfLocations({ owners, locations }: Pick<Packed, 'owners' | 'locations'>): Uint8Array {
  const known = new Map(owners.text.map((text, at) => [text, owners.owner[at]!]));
  return Uint8Array.from(locations.file, (file, at) => known.get(locations.library[at]! < 0 ? file : locations.library[at]!) ?? OTHER);
}

/** Returns whether a location is a native function of the interpreter, such as `_PyEval_EvalFrameDefault`. */
export function isInterpreter({ ownerOf, locations }: Data, location: number): boolean {
  return ownerOf[location] === INTERPRETER && locations.library[location]! >= 0;
}

/**
 * Returns for each node who allocated its own blocks: the owner of the innermost frame, without native functions of the
 * interpreter and arenas, which work on behalf of their callers.
 */
function ownersOfNodes(data: Data): Uint8Array {
  const { n, parent, location } = data.nodes;
  const owners = new Uint8Array(n).fill(INTERPRETER);
  for (let node = 1; node < n; node++) {
    const at = location[node]!;
    const isOwn = at >= 0 && (data.ownerOf[at] !== INTERPRETER || data.locations.import_system[at]);
    owners[node] = isOwn ? data.ownerOf[at]! : at === NO_FRAMES ? INTERPRETER : owners[parent[node]!]!;
  }
  return owners;
}

/** Returns the sum that each owner allocated, by the numbers above. The returned function can be called for many selections. */
export function ownershipOf(data: Data): (selection: Selection, unit: 'bytes' | 'count') => number[] {
  const owners = ownersOfNodes(data);
  return (selection, unit) => {
    const passes = passing(data, selection);
    const { node, origin, n } = data.own;
    const values = entryAmounts(data, selection)[unit];
    const sums = OWNER_NAMES.map(() => 0);
    for (let entry = 0; entry < n; entry++) {
      if (passes[origin[entry]!]) sums[owners[node[entry]!]!]! += values[entry]!;
    }
    return sums;
  };
}
