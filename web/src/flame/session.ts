/** The tree that is looked at and what was found in it, made anew whenever a setting asks for it. */
import { computed, signal } from '@preact/signals';
import { colouring } from '../colours.ts';
import { diffColouring } from '../diff/colouring.ts';
import type { Data } from '../model/data.ts';
import { expression, find } from '../model/search.ts';
import { changes } from '../model/sides.ts';
import { buildTree, follow, keys, pathTo } from '../model/tree.ts';
import { change, settings, shape } from '../state.ts';

export type Session = ReturnType<typeof openSession>;

export function openSession(data: Data) {
  const byModule = colouring(data);
  const bySide = diffColouring();
  const tree = computed(() => buildTree(data, shape.value));
  const searchText = computed(() => settings.value.search);
  const found = computed(() => {
    if (searchText.value === '') return undefined;
    const wanted = expression(searchText.value);
    if (!wanted) return undefined;
    return find(data, tree.value, wanted, tree.value.sides ? changes(tree.value) : undefined);
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
    /** Whether what is typed into the search makes no regular expression. */
    isBadSearch: computed(() => searchText.value !== '' && expression(searchText.value) === undefined),
  };
}
