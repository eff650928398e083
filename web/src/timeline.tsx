/** The page of `heaptide timeline`. */
import { useMemo } from 'preact/hooks';
import { setFallbackInterval } from './chart/interval.ts';
import { Choice, commonKey } from './controls/Choice.tsx';
import { FilterChoice } from './controls/Filter.tsx';
import type { Keys } from './controls/Help.tsx';
import { intervalText } from './controls/IntervalChoice.tsx';
import { Shell, showPage } from './controls/Shell.tsx';
import { DiffControls } from './diff/Controls.tsx';
import { DiffTable } from './diff/DiffTable.tsx';
import { changeKey, changeRows, KEYS as CHANGE_KEYS } from './diff/page.ts';
import { FlameView } from './flame/FlameView.tsx';
import { openGraph, type GraphState } from './flame/graph-state.ts';
import { Header, toggleTheme } from './header/Header.tsx';
import { type Data, readPageData, programOf } from './model/data.ts';
import { changePercent, signed } from './model/format.ts';
import { change, settings, startState } from './state.ts';
import { Charts } from './timeline/Charts.tsx';
import { growthOfProcesses } from './timeline/growth.ts';
import { withPeakEdge } from './timeline/peak-edge.ts';
import { Jobs } from './timeline/Jobs.tsx';
import { Processes } from './timeline/Processes.tsx';
import './style.css';
import './table/table.css';
import './timeline/timeline.css';

const KEYS: Keys = [
  ['k', 'switch between stacked and side by side'],
  ['u', 'switch between heap and resident size'],
  ...CHANGE_KEYS,
];

function Page({ graph }: { graph: GraphState }) {
  const { data } = graph;
  const rows = useMemo(() => changeRows(graph), [graph]);
  const isGraph = settings.value.view === 'graph';
  return (
    <Shell
      className="timeline-page"
      keys={KEYS}
      note="Drag over a chart to set two marks; click to reset them to the start and the peak."
      onKey={(key, help) => timelineKey(key) || commonKey(data, key, help, toggleTheme, ['growth']) || changeKey(graph, key)}
    >
      {(help) => (
        <>
          <Header data={data} what="timeline" onHelp={help} />
          <Curves data={data} />
          <Charts data={data} />
          <Jobs data={data} />
          <Processes data={data} />
          {data.lives && (
            <>
              <Growth data={data} />
              <DiffControls graph={graph} rows={isGraph ? [] : rows.value} first={<FilterChoice data={data} />} />
              {isGraph ? <FlameView graph={graph} /> : <DiffTable rows={rows.value} />}
            </>
          )}
        </>
      )}
    </Shell>
  );
}

function Curves({ data }: { data: Data }) {
  const { layout, curve } = settings.value;
  const isMany = data.head.processes.length > 1;
  return (
    <nav class="controls" aria-label="Chart options">
      {isMany && (
        <Choice
          label="Layout"
          value={layout}
          options={[
            ['stacked', 'Stacked', 'Stack the processes (k)'],
            ['side', 'Side by side', 'One chart per process (k)'],
          ]}
          onChange={(wanted) => change({ layout: wanted })}
        />
      )}
      {layout === 'stacked' && (
        <Choice
          label="Curve"
          value={curve}
          options={[
            ['heap', 'Heap', 'Memory allocated by the processes (u)'],
            ['resident', 'Resident', 'Memory of the processes in RAM (u)'],
          ]}
          onChange={(wanted) => change({ curve: wanted })}
        />
      )}
      {data.lives && <span class="hint">Drag over the chart to set two marks</span>}
    </nav>
  );
}

function Growth({ data }: { data: Data }) {
  const { process, from, to } = settings.value;
  const chosen = growthOfProcesses(data, from, to).filter((_, at) => process < 0 || process === at);
  const before = chosen.reduce((sum, one) => sum + one.before, 0);
  const grew = chosen.reduce((sum, one) => sum + one.after, 0) - before;
  const sense = grew > 0 ? 'grown' : grew < 0 ? 'shrunk' : 'same';
  return (
    <h2 class="growth">
      Growth between the marks, {intervalText(data)}:{' '}
      <b class={sense} data-figure="growth">
        {signed(grew, 'bytes')}
      </b>{' '}
      <small>{changePercent(before, grew)}</small>
    </h2>
  );
}

function timelineKey(key: string): boolean {
  const { layout, curve } = settings.value;
  switch (key) {
    case 'k':
      change({ layout: layout === 'stacked' ? 'side' : 'stacked' });
      return true;
    case 'u':
      change({ curve: curve === 'heap' ? 'resident' : 'heap' });
      return true;
    default:
      return false;
  }
}

showPage(readPageData(), (read) => {
  const { data, peak } = withPeakEdge(read);
  const marks = { from: data.lives ? 0 : -1, to: peak };
  setFallbackInterval(marks.from, marks.to);
  startState(data, { ...marks, kind: 'growth', grouping: 'stack', sort: '-change', view: 'table', merge: 'function' });
  return { title: `${programOf(data)} · timeline`, page: <Page graph={openGraph(data)} /> };
});
