/** The tree on screen with its matches, zoom and selection, recomputed when a setting changes. */
import { computed, effect, signal } from '@preact/signals';
import { colouring } from '../colours.ts';
import { diffColouring } from '../diff/colouring.ts';
import type { Data } from '../model/data.ts';
import { expression, find, Matching } from '../model/search.ts';
import { changes } from '../model/sides.ts';
import { buildTree, follow, keys, pathTo } from '../model/tree.ts';
import { change, settings, shape } from '../state.ts';

/** Time that a search may take of one animation frame. */
const SLICE_MS = 10;

export type GraphState = ReturnType<typeof openGraph>;

export function openGraph(data: Data) {
  const byModule = colouring(data);
  const bySide = diffColouring();
  const tree = computed(() => buildTree(data, shape.value));
  const searchText = computed(() => settings.value.search);
  const matching = signal<Matching | undefined>(undefined);
  effect(() => {
    const wanted = searchText.value === '' ? undefined : expression(searchText.value);
    return match(wanted && new Matching(data, wanted), (done) => (matching.value = done));
  });
  const matches = computed(() => {
    if (!matching.value) return undefined;
    return find(tree.value, matching.value, tree.value.sides ? changes(tree.value) : undefined);
  });
  const zoomPath = computed(() => settings.value.zoom);
  const zoom = computed(() => follow(tree.value, zoomPath.value, keys(data, shape.value)));
  /** The frame selected by keyboard; −1 if none. It is valid only in the tree in which it was selected. */
  const chosen = signal({ tree: tree.value, node: -1 });
  const selected = computed(() => (chosen.value.tree === tree.value ? chosen.value.node : -1));
  return {
    data,
    /** Red and green in a comparison, otherwise colours of modules. */
    colours: computed(() => (tree.value.sides ? bySide : byModule)),
    byModule,
    tree,
    matches,
    zoom,
    selected,
    select: (node: number) => (chosen.value = { tree: tree.value, node }),
    zoomTo: (node: number) => change({ zoom: pathTo(tree.value, node) }),
  };
}

/** Runs a search in slices between animation frames. Returns a function that cancels it. */
function match(matching: Matching | undefined, done: (matching: Matching | undefined) => void): () => void {
  let waiting = 0;
  const step = () => {
    if (!matching || matching.step(SLICE_MS)) done(matching);
    else waiting = window.setTimeout(step);
  };
  step();
  return () => window.clearTimeout(waiting);
}
