/** Choices and search above the table. */
import { useSignal } from '@preact/signals';
import { IntervalChoice } from '../controls/IntervalChoice.tsx';
import { Choice, KINDS_OF_TABLE, MeasureChoice, Toggle, WhoChoice } from '../controls/Choice.tsx';
import { FindingsToggle } from '../findings/Findings.tsx';
import type { Data } from '../model/data.ts';
import { bytes, plural } from '../model/format.ts';
import { csv, type Row, type Rows } from '../model/rows.ts';
import { change, settings } from '../state.ts';
import { copyText } from './copy.ts';

export function Controls(props: { data: Data; rows: Row[]; all: Rows; isBadSearch: boolean }) {
  const { data, rows, all, isBadSearch } = props;
  const now = settings.value;
  const copied = useSignal('');
  const copy = async () => {
    copied.value = (await copyText(csv(rows))) ? `${plural(rows.length, 'row')} copied` : 'the browser did not allow it';
  };
  const said = isBadSearch
    ? 'no regular expression'
    : `${plural(rows.length, 'row')}${rows.length < all.rows.length ? ` of ${all.rows.length}` : ''} · own ${bytes(rows.reduce((sum, row) => sum + row.ownBytes, 0))}`;
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
        <button type="button" class="plain" id="copy" title="Copy these rows as CSV (c)" onClick={() => void copy()}>
          Copy as CSV
        </button>
      </span>
      <FindingsToggle data={data} />
      <span class="search">
        <input
          type="search"
          placeholder="Search: function, file, module, regular expression"
          aria-label="Search rows by a regular expression"
          aria-invalid={isBadSearch}
          spellcheck={false}
          value={now.search}
          onInput={(event) => change({ search: event.currentTarget.value })}
          onKeyDown={(event) => {
            if (event.key !== 'Escape') return;
            if (now.search) change({ search: '' });
            else event.currentTarget.blur();
            event.preventDefault();
          }}
        />
        <output aria-live="polite">{copied.value || said}</output>
      </span>
    </nav>
  );
}
