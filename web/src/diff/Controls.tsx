/** Choices and search above the graph and the table of a comparison. */
import type { ComponentChildren } from 'preact';
import { Choice, Toggle, UnitChoice } from '../controls/Choice.tsx';
import { Group } from '../controls/Group.tsx';
import { SearchField } from '../controls/SearchField.tsx';
import { Search } from '../flame/Controls.tsx';
import type { GraphState } from '../flame/graph-state.ts';
import { plural, signed } from '../model/format.ts';
import { change, settings } from '../state.ts';
import { useCopy } from '../table/CopyButton.tsx';
import { type ChangeRow, csv } from './rows.ts';

/** `first` is the leading choice of the page. */
export function DiffControls({ graph, rows, first }: { graph: GraphState; rows: ChangeRow[]; first: ComponentChildren }) {
  const now = settings.value;
  const isGraph = now.view === 'graph';
  return (
    <nav class="controls" aria-label="View options">
      <Choice
        label="View"
        value={now.view}
        options={[
          ['graph', 'Graph', 'Flame graph of the change (v)'],
          ['table', 'Table', 'Table of the change (v)'],
        ]}
        onChange={(view) => change({ view })}
      />
      {first}
      {isGraph ? <GraphChoices graph={graph} /> : <TableChoices rows={rows} />}
    </nav>
  );
}

function GraphChoices({ graph }: { graph: GraphState }) {
  const now = settings.value;
  return (
    <>
      <UnitChoice />
      <Choice
        label="Width of frames"
        value={now.width}
        options={[
          ['change', 'Change', 'A frame is as wide as its change (w)'],
          ['both', 'Larger', 'A frame is as wide as the larger of its sides (w)'],
          ['before', 'Before', 'A frame is as wide as its size before (w)'],
          ['after', 'After', 'A frame is as wide as its size after (w)'],
        ]}
        onChange={(width) => change({ width })}
      />
      <Group className="group" label="Shape of the graph">
        <Toggle text="Inverted" title="Allocating functions first, their callers below (i)" value={now.inverted} onChange={(inverted) => change({ inverted, zoom: [] })} />
        <Toggle
          text="By line"
          title="Separate the lines of a function (l)"
          value={now.merge === 'line'}
          onChange={(on) => change({ merge: on ? 'line' : 'function' })}
        />
      </Group>
      <Search graph={graph} />
    </>
  );
}

function TableChoices({ rows }: { rows: ChangeRow[] }) {
  const now = settings.value;
  const copy = useCopy(rows, csv);
  const sum = rows.reduce((all, row) => all + row.change, 0);
  return (
    <>
      <Choice
        label="Rows"
        value={now.grouping}
        options={[
          ['stack', 'Stack', 'One row per call stack (g)'],
          ['location', 'Line', 'One row per line (g)'],
          ['function', 'Function', 'One row per function (g)'],
          ['file', 'File', 'One row per file (g)'],
          ['module', 'Module', 'One row per module or package (g)'],
        ]}
        onChange={(grouping) => change({ grouping })}
      />
      {copy.button}
      <SearchField
        placeholder="Search by a regular expression"
        label="Search rows by a regular expression"
        status={copy.status || `${plural(rows.length, 'row')} · ${signed(sum, 'bytes')}`}
      />
    </>
  );
}
