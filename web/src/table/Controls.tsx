/** Choices and search above the table. */
import { IntervalChoice } from '../controls/IntervalChoice.tsx';
import { Choice, TABLE_INTERVAL_VIEWS, MeasureChoice, Toggle } from '../controls/Choice.tsx';
import { FilterChoice } from '../controls/Filter.tsx';
import { Group } from '../controls/Group.tsx';
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
  const status = `${plural(rows.length, 'row')}${of} · own ${bytes(rows.reduce((sum, row) => sum + row.ownBytes, 0))}`;
  return (
    <nav class="controls" aria-label="View options">
      {now.from < 0 ? <MeasureChoice data={data} /> : <IntervalChoice data={data} views={TABLE_INTERVAL_VIEWS} />}
      <Choice
        label="Rows"
        value={now.grouping}
        options={[
          ['location', 'Line', 'One row per line (g)'],
          ['function', 'Function', 'One row per function (g)'],
          ['file', 'File', 'One row per file (g)'],
          ['module', 'Module', 'One row per module or package (g)'],
        ]}
        onChange={(grouping) => change({ row: '', grouping })}
      />
      <FilterChoice data={data} />
      <Group className="group" label="Shape of the rows">
        {new Set(data.origins.thread).size > 1 && (
          <Toggle text="By thread" title="One row per thread (s)" value={now.splitThreads} onChange={(splitThreads) => change({ row: '', splitThreads })} />
        )}
        <Toggle text="By allocator" title="One row per allocator (a)" value={now.splitAllocators} onChange={(splitAllocators) => change({ row: '', splitAllocators })} />
        {copy.button}
      </Group>
      <FindingsToggle data={data} />
      <SearchField
        placeholder="Search by a regular expression"
        label="Search rows by a regular expression"
        status={copy.status || status}
      />
    </nav>
  );
}
