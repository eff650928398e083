/** The tree that is looked at and what was found in it, made anew whenever a setting asks for it. */
import { computed, effect, signal } from '@preact/signals';
import { colouring } from '../colours.ts';
import { diffColouring } from '../diff/colouring.ts';
import type { Data } from '../model/data.ts';
import { expression, find, Matching } from '../model/search.ts';
import { changes } from '../model/sides.ts';
import { buildTree, follow, keys, pathTo } from '../model/tree.ts';
import { change, settings, shape } from '../state.ts';

/** Of a screen's frame, what a search may take. */
const SLICE_MS = 10;

export type Session = ReturnType<typeof openSession>;

export function openSession(data: Data) {
  const byModule = colouring(data);
  const bySide = diffColouring();
  const tree = computed(() => buildTree(data, shape.value));
  const searchText = computed(() => settings.value.search);
  const matching = signal<Matching | undefined>(undefined);
  effect(() => {
    const wanted = searchText.value === '' ? undefined : expression(searchText.value);
    return match(wanted && new Matching(data, wanted), (done) => (matching.value = done));
  });
  const found = computed(() => {
    if (!matching.value) return undefined;
    return find(tree.value, matching.value, tree.value.sides ? changes(tree.value) : undefined);
  });
  const zoomPath = computed(() => settings.value.zoom);
  const zoom = computed(() => follow(tree.value, zoomPath.value, keys(data, shape.value)));
  /** The frame that the keyboard stands on; −1 if none. It belongs to the tree that it was chosen in. */
  const chosen = signal({ tree: tree.value, node: -1 });
  const selected = computed(() => (chosen.value.tree === tree.value ? chosen.value.node : -1));
  return {
    data,
    /** Frames of two sides are red and green, others have the colours of their modules. */
    colours: computed(() => (tree.value.sides ? bySide : byModule)),
    byModule,
    tree,
    found,
    zoom,
    selected,
    select: (node: number) => (chosen.value = { tree: tree.value, node }),
    zoomTo: (node: number) => change({ zoom: pathTo(tree.value, node) }),
  };
}

/** At once if it is quick, else in slices between the frames of the screen. Returns how to give it up. */
function match(matching: Matching | undefined, done: (matching: Matching | undefined) => void): () => void {
  let waiting = 0;
  const step = () => {
    if (!matching || matching.step(SLICE_MS)) done(matching);
    else waiting = window.setTimeout(step);
  };
  step();
  return () => window.clearTimeout(waiting);
}
