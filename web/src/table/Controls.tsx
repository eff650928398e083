/** Choices and search above the table. */
import { IntervalChoice } from '../controls/IntervalChoice.tsx';
import { Choice, KINDS_OF_TABLE, MeasureChoice, Toggle, WhoChoice } from '../controls/Choice.tsx';
import { SearchField } from '../controls/SearchField.tsx';
import { FindingsToggle } from '../findings/Findings.tsx';
import type { Data } from '../model/data.ts';
import { bytes, plural } from '../model/format.ts';
import { csv, type Row, type Rows } from '../model/rows.ts';
import { change, settings } from '../state.ts';
import { useCopy } from './CopyButton.tsx';

export function Controls(props: { data: Data; rows: Row[]; all: Rows }) {
  const { data, rows, all } = props;
  const now = settings.value;
  const copy = useCopy(rows, csv);
  const of = rows.length < all.rows.length ? ` of ${all.rows.length}` : '';
  const said = `${plural(rows.length, 'row')}${of} · own ${bytes(rows.reduce((sum, row) => sum + row.ownBytes, 0))}`;
  return (
    <nav class="controls" aria-label="What is shown">
      {now.from < 0 ? <MeasureChoice data={data} /> : <IntervalChoice data={data} kinds={KINDS_OF_TABLE} />}
      <Choice
        label="Rows"
        value={now.grouping}
        options={[
          ['location', 'Line', 'A row for each line (g)'],
          ['function', 'Function', 'A row for each function (g)'],
          ['file', 'File', 'A row for each file (g)'],
          ['module', 'Module', 'A row for each module or package (g)'],
        ]}
        onChange={(grouping) => change({ grouping })}
      />
      <WhoChoice data={data} />
      <span class="group">
        {new Set(data.origins.thread).size > 1 && (
          <Toggle text="By thread" title="A row for each thread (s)" value={now.splitThreads} onChange={(splitThreads) => change({ splitThreads })} />
        )}
        <Toggle text="By allocator" title="A row for each allocator (a)" value={now.splitAllocators} onChange={(splitAllocators) => change({ splitAllocators })} />
        {copy.button}
      </span>
      <FindingsToggle data={data} />
      <SearchField
        placeholder="Search: function, file, module, regular expression"
        label="Search rows by a regular expression"
        said={copy.said || said}
      />
    </nav>
  );
}
