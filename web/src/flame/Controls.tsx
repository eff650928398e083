/** Search and choices above the flame graph. */
import { IntervalChoice } from '../controls/IntervalChoice.tsx';
import { Choice, MeasureChoice, Toggle, UnitChoice } from '../controls/Choice.tsx';
import { FilterChoice } from '../controls/Filter.tsx';
import { Group } from '../controls/Group.tsx';
import { SearchField } from '../controls/SearchField.tsx';
import { FindingsToggle } from '../findings/Findings.tsx';
import { amount, percent, plural, signed } from '../model/format.ts';
import { isInterpreter, USER } from '../model/owners.ts';
import { change, settings } from '../state.ts';
import type { GraphState } from './graph-state.ts';

export function Controls({ graph }: { graph: GraphState }) {
  const now = settings.value;
  const hasImports = graph.data.locations.import_system.some(Boolean);
  const hasNative = graph.data.locations.library.some((name) => name >= 0);
  const hasInterpreter = graph.data.ownerOf.some((_, at) => isInterpreter(graph.data, at));
  const { ownerOf } = graph.data;
  const hasOthers = ownerOf.includes(USER) && ownerOf.some((owner) => owner !== USER);
  const hasThreads = new Set(graph.data.origins.thread).size > 1;
  return (
    <nav class="controls" aria-label="View options">
      {now.from < 0 ? <MeasureChoice data={graph.data} /> : <IntervalChoice data={graph.data} />}
      <UnitChoice />
      <FilterChoice data={graph.data} />
      <Group className="group" label="Shape of the graph">
        {hasOthers && (
          <Toggle
            text="My code"
            title="Fold frames of packages, the standard library and the interpreter into the frame of my code that called them (y)"
            value={now.myCode}
            onChange={(myCode) => change({ myCode, zoom: [] })}
          />
        )}
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
        {hasInterpreter && (
          <Toggle
            text="Hide interpreter"
            title="Hide functions of the interpreter, such as _PyEval_EvalFrameDefault (u)"
            value={now.hideInterpreter}
            onChange={(hideInterpreter) => change({ hideInterpreter, zoom: [] })}
          />
        )}
        {hasThreads && (
          <Toggle text="Split threads" title="One tree per thread (s)" value={now.splitThreads} onChange={(splitThreads) => change({ splitThreads, zoom: [] })} />
        )}
      </Group>
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
