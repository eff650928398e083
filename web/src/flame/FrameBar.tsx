/** The selected frame, pinned above the graph: its numbers, its stack to copy, and a link that opens its line in an editor. */
import { CopyText } from '../controls/CopyText.tsx';
import { EditorChoice, EditorLink } from '../controls/EditorLink.tsx';
import { amount, label, locationName, percent, shortFile } from '../model/format.ts';
import { stackText } from '../model/stack-text.ts';
import { settings } from '../state.ts';
import type { GraphState } from './graph-state.ts';

/** Returns the frame that actions apply to: the selected one, or else the zoomed one; 0 if there is none. */
export function activeFrame(graph: GraphState): number {
  return Math.max(graph.selected.value, 0) || graph.zoom.value;
}

/** Returns the stack of a frame as text. In an inverted graph the callers are below, so the stack is the other way round. */
export function stackOfFrame(graph: GraphState, node: number): string {
  const tree = graph.tree.value;
  const keys: number[] = [];
  for (let at = node; at !== 0; at = tree.parent[at]!) keys.push(tree.key[at]!);
  return stackText(graph.data, settings.value.inverted ? keys.reverse() : keys);
}

export function FrameBar({ graph }: { graph: GraphState }) {
  const node = activeFrame(graph);
  if (node === 0) return null;
  const { data } = graph;
  const tree = graph.tree.value;
  const { name, location } = label(data, tree, node, settings.value.merge === 'line');
  const size = tree.total[tree.unit];
  const key = tree.key[node]!;
  const folder = data.head.processes[0]?.working_directory ?? '';
  return (
    <section class="frame" aria-label="Selected frame">
      <span>
        <b>{name}</b> <span class="location">{shortFile(location)}</span>
      </span>
      {!tree.sides && <span>{`${amount(size[node]!, tree.unit)} · ${percent(size[node]!, size[0]!)}`}</span>}
      <CopyText text={() => stackOfFrame(graph, node)} what="stack" />
      {key >= 0 && data.locations.line[key]! > 0 && (
        <span class="editor">
          <EditorLink id="editor" file={locationName(data, key, false)} line={data.locations.line[key]!} folder={folder} />
          <EditorChoice />
        </span>
      )}
    </section>
  );
}
