/** Search and choices above the flame graph. */
import { IntervalChoice } from '../controls/IntervalChoice.tsx';
import { Choice, MeasureChoice, Toggle, UnitChoice, ProcessAndThreadChoice } from '../controls/Choice.tsx';
import { SearchField } from '../controls/SearchField.tsx';
import { FindingsToggle } from '../findings/Findings.tsx';
import { amount, percent, plural, signed } from '../model/format.ts';
import { change, settings } from '../state.ts';
import type { GraphState } from './graph-state.ts';

export function Controls({ graph }: { graph: GraphState }) {
  const now = settings.value;
  const hasImports = graph.data.locations.import_system.some(Boolean);
  const hasNative = graph.data.locations.library.some((name) => name >= 0);
  const hasThreads = new Set(graph.data.origins.thread).size > 1;
  return (
    <nav class="controls" aria-label="View options">
      {now.from < 0 ? <MeasureChoice data={graph.data} /> : <IntervalChoice data={graph.data} />}
      <UnitChoice />
      <ProcessAndThreadChoice data={graph.data} />
      <span class="group">
        <Toggle text="Inverted" title="Allocating functions first, their callers below (i)" value={now.inverted} onChange={(inverted) => change({ inverted, zoom: [] })} />
        <Toggle
          text="By function"
          title="Merge frames on different lines of one function (l)"
          value={now.merge === 'function'}
          onChange={(on) => change({ merge: on ? 'function' : 'line' })}
        />
        {hasImports && (
          <Toggle text="Hide imports" title="Hide frames of the import system (h)" value={now.hideImports} onChange={(hideImports) => change({ hideImports })} />
        )}
        {hasNative && (
          <Toggle text="Hide native" title="Hide C, C++ and Rust functions (k)" value={now.hideNative} onChange={(hideNative) => change({ hideNative, zoom: [] })} />
        )}
        {hasThreads && (
          <Toggle text="Split threads" title="One tree per thread (s)" value={now.splitThreads} onChange={(splitThreads) => change({ splitThreads, zoom: [] })} />
        )}
      </span>
      <Choice
        label="Direction"
        value={now.orientation}
        options={[
          ['icicle', '▼', 'Root at the top (o)'],
          ['flame', '▲', 'Root at the bottom (o)'],
        ]}
        onChange={(orientation) => change({ orientation })}
      />
      <FindingsToggle data={graph.data} />
      <Search graph={graph} />
    </nav>
  );
}

export function Search({ graph }: { graph: GraphState }) {
  const matches = graph.matches.value;
  const tree = graph.tree.value;
  let status = '';
  if (matches) {
    const frames = plural(matches.nodes.length, 'frame');
    if (tree.sides) status = `${frames} · ${signed(matches.amount, tree.unit)}`;
    else status = `${frames} · ${amount(matches.amount, tree.unit)} · ${percent(matches.amount, tree.total[tree.unit][0]!)}`;
  }
  return (
    <SearchField
      placeholder="Search: function, file, module, regular expression"
      label="Search frames by a regular expression"
      status={status}
      onEnter={(isBack) => nextMatch(graph, isBack ? -1 : 1)}
    />
  );
}

/** Selects the next match, from left to right and row by row. */
export function nextMatch(graph: GraphState, step: number): void {
  const matches = graph.matches.value;
  if (!matches || matches.nodes.length === 0) return;
  const at = matches.nodes.indexOf(graph.selected.value);
  const next = at < 0 ? (step > 0 ? 0 : matches.nodes.length - 1) : (at + step + matches.nodes.length) % matches.nodes.length;
  graph.select(matches.nodes[next]!);
  graph.zoomTo(graph.tree.value.parent[matches.nodes[next]!]!);
}
