/** Choices and search of a comparison: over its graph and over its table. */
import type { ComponentChildren } from 'preact';
import { Choice, Toggle, UnitChoice } from '../controls/Choice.tsx';
import { SearchField } from '../controls/SearchField.tsx';
import { Search } from '../flame/Controls.tsx';
import type { Session } from '../flame/session.ts';
import { plural, signed } from '../model/format.ts';
import { change, settings } from '../state.ts';
import { useCopy } from '../table/CopyButton.tsx';
import { type ChangeRow, csv } from './rows.ts';

/** `first`: what is compared with what. */
export function DiffControls({ session, rows, first }: { session: Session; rows: ChangeRow[]; first: ComponentChildren }) {
  const now = settings.value;
  const isGraph = now.view === 'graph';
  return (
    <nav class="controls" aria-label="What is shown">
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
      {isGraph ? <GraphChoices session={session} /> : <TableChoices rows={rows} />}
    </nav>
  );
}

function GraphChoices({ session }: { session: Session }) {
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
          ['before', 'Before', 'A frame is as wide as it was before (w)'],
          ['after', 'After', 'A frame is as wide as it is after (w)'],
        ]}
        onChange={(width) => change({ width })}
      />
      <span class="group">
        <Toggle text="Inverted" title="Who allocated first, and below it who called it (i)" value={now.inverted} onChange={(inverted) => change({ inverted, zoom: [] })} />
        <Toggle
          text="By line"
          title="Tell lines of one function apart (l)"
          value={now.merge === 'line'}
          onChange={(on) => change({ merge: on ? 'line' : 'function' })}
        />
      </span>
      <Search session={session} />
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
          ['stack', 'Stack', 'A row for each call stack (g)'],
          ['location', 'Line', 'A row for each line (g)'],
          ['function', 'Function', 'A row for each function (g)'],
          ['file', 'File', 'A row for each file (g)'],
          ['module', 'Module', 'A row for each module or package (g)'],
        ]}
        onChange={(grouping) => change({ grouping })}
      />
      {copy.button}
      <SearchField
        placeholder="Search: function, file, callers, regular expression"
        label="Search rows by a regular expression"
        said={copy.said || `${plural(rows.length, 'row')} · ${signed(sum, 'bytes')}`}
      />
    </>
  );
}
