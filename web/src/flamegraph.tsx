/** The page of `heaptide flamegraph`. */
import { Timeline } from './chart/Timeline.tsx';
import { commonKey } from './controls/Choice.tsx';
import type { Keys } from './controls/Help.tsx';
import { Shell, showPage } from './controls/Shell.tsx';
import { Controls } from './flame/Controls.tsx';
import { DiffLegend } from './diff/Legend.tsx';
import { Findings } from './findings/Findings.tsx';
import { showInGraph } from './findings/show.ts';
import { FrameBar } from './flame/FrameBar.tsx';
import { FlameView } from './flame/FlameView.tsx';
import { graphKey } from './flame/keys.ts';
import { Legend } from './flame/Legend.tsx';
import { Ownership } from './flame/Ownership.tsx';
import { openGraph, type GraphState } from './flame/graph-state.ts';
import { Header, toggleTheme } from './header/Header.tsx';
import { readPageData, programOf } from './model/data.ts';
import { startState } from './state.ts';
import './style.css';

const KEYS: Keys = [
  ['←  →  ↑  ↓', 'move from frame to frame'],
  ['Enter', 'zoom to the frame; again zooms out'],
  ['Backspace', 'zoom out by one frame'],
  ['Escape', 'clear the search, then zoom out'],
  ['c  e', 'copy the stack of the selected frame, open its line in an editor'],
  ['n  N', 'next and previous match of the search'],
  ['y', 'show only my code: fold other frames into its callers'],
  ['i', 'invert: allocating functions first, then their callers'],
  ['l', 'merge frames by function or by line'],
  ['h', 'hide frames of the import system'],
  ['k', 'hide native frames, if the capture has them'],
  ['u', 'hide native frames of the interpreter, if the capture has them'],
  ['s', 'split by thread'],
  ['o', 'root at the top or at the bottom'],
];

function Page({ graph }: { graph: GraphState }) {
  const { data } = graph;
  return (
    <Shell
      className="flame-page"
      keys={KEYS}
      note="A click has the same effect as Enter."
      onKey={(key, help) => commonKey(data, key, help, toggleTheme) || graphKey(graph, key)}
    >
      {(help) => (
        <>
          <Header data={data} what="flame graph" onHelp={help} isInterval />
          <Timeline data={data} />
          <Controls graph={graph} />
          {!graph.tree.value.sides && <Ownership graph={graph} />}
          <FrameBar graph={graph} />
          <div class="with-findings">
            <FlameView graph={graph} />
            <Findings data={data} onShow={(finding) => showInGraph(data, finding)} />
          </div>
          {graph.tree.value.sides ? <DiffLegend data={data} /> : <Legend graph={graph} />}
        </>
      )}
    </Shell>
  );
}

showPage(readPageData(), (data) => {
  startState(data);
  return { title: `${programOf(data)} · flame graph`, page: <Page graph={openGraph(data)} /> };
});
