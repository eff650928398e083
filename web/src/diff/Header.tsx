/** Header of a comparison: the two sides and the total changes. */
import { type Data, type DiffSide, type Measure, shownName } from '../model/data.ts';
import { bytes, changePercent, duration, plural, signed, whole } from '../model/format.ts';
import { Bar, Notes } from '../header/Header.tsx';

const FIGURES: readonly (readonly [Measure, string])[] = [
  ['peak', 'peak'],
  ['leaked', 'live at the end'],
  ['total', 'total allocated'],
];

export function DiffHeader({ data, onHelp }: { data: Data; onHelp: () => void }) {
  const { before, after, whole: changes, warnings } = data.head.diff!;
  const named = (name: 'before' | 'after', side: DiffSide) => side.warnings.map((text) => `${name}: ${text}`);
  const commands = [before, after].map((side) => side.processes[0]?.command_line || 'a Python program');
  const title = commands[0] === commands[1] ? commands[0]! : commands.join('  →  ');
  return (
    <header class="head">
      <Bar what="diff" title={title} onHelp={onHelp} />
      <div class="facts">
        <dl class="figures">
          {FIGURES.filter(([measure]) => data.head.measures.includes(measure)).map(([measure, name]) => {
            const change = changes[measure];
            const sense = change.is_noise || change.change_bytes === 0 ? 'same' : change.change_bytes > 0 ? 'grown' : 'shrunk';
            const noise = change.error_bytes > 0 ? ` ± ${bytes(change.error_bytes)}` : '';
            return (
              <div key={name} title={`${whole(change.before_bytes)} → ${whole(change.after_bytes)} bytes`}>
                <dt>
                  {name}: {bytes(change.before_bytes)} → {bytes(change.after_bytes)}
                </dt>
                <dd data-figure={name} class={sense}>
                  {signed(change.change_bytes, 'bytes')}
                  <small>
                    {noise} {changePercent(change.before_bytes, change.change_bytes)}
                    {change.is_noise && ', within noise'}
                  </small>
                </dd>
              </div>
            );
          })}
        </dl>
        <p class="about">
          <Side name="before" side={before} data={data} first={0} />
          <Side name="after" side={after} data={data} first={data.head.diff!.n_before} />
        </p>
      </div>
      <Notes warnings={[...warnings, ...named('before', before), ...named('after', after)]} remarks={data.head.remarks} />
    </header>
  );
}

function Side({ name, side, data, first }: { name: string; side: DiffSide; data: Data; first: number }) {
  const process = data.head.processes[first];
  const files = side.processes.map((known) => known.file);
  const shown = files.length > 1 ? `${files[0]} and ${plural(files.length - 1, 'more', 'more')}` : files[0];
  const facts = [
    shown,
    side.processes.length > 1 ? plural(side.processes.length, 'process', 'processes') : `process ${shownName(process)}`,
    `Python ${process?.python}`,
    duration(side.duration_ns),
    `mode: ${process?.mode}`,
  ];
  return (
    <span class="side" title={files.join('\n')}>
      <b>{name}</b> {facts.join(' · ')}
    </span>
  );
}
