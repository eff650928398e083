/** The page of `heaptide diff --html`. */
import { useMemo } from 'preact/hooks';
import { commonKey, MeasureChoice } from './controls/Choice.tsx';
import { Shell, showPage } from './controls/Shell.tsx';
import { DiffControls } from './diff/Controls.tsx';
import { Curves } from './diff/Curves.tsx';
import { DiffTable } from './diff/DiffTable.tsx';
import { DiffHeader } from './diff/Header.tsx';
import { DiffLegend } from './diff/Legend.tsx';
import { changeKey, changeRows, KEYS } from './diff/page.ts';
import { FlameView } from './flame/FlameView.tsx';
import { openGraph, type GraphState } from './flame/graph-state.ts';
import { toggleTheme } from './header/Header.tsx';
import { readPageData, programOf } from './model/data.ts';
import { settings, startState } from './state.ts';
import './style.css';
import './table/table.css';

function Page({ graph }: { graph: GraphState }) {
  const { data } = graph;
  const rows = useMemo(() => changeRows(graph), [graph]);
  const isGraph = settings.value.view === 'graph';
  return (
    <Shell
      className="flame-page"
      keys={KEYS}
      note="Click on a row of the table to show its stack in the graph."
      onKey={(key, help) => commonKey(data, key, help, toggleTheme) || changeKey(graph, key)}
    >
      {(help) => (
        <>
          <DiffHeader data={data} onHelp={help} />
          <Curves data={data} />
          <DiffControls graph={graph} rows={isGraph ? [] : rows.value} first={<MeasureChoice data={data} />} />
          {isGraph ? <FlameView graph={graph} /> : <DiffTable rows={rows.value} />}
          <DiffLegend data={data} />
        </>
      )}
    </Shell>
  );
}

showPage(readPageData(), (data) => {
  startState(data);
  return { title: `${programOf(data)} · diff`, page: <Page graph={openGraph(data)} /> };
});
