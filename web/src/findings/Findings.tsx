/** The list of findings next to the graph or table. Each finding links to its frame. */
import { Fragment } from 'preact';
import type { Data, Finding } from '../model/data.ts';
import { shortFile } from '../model/format.ts';
import { change, settings } from '../state.ts';

/** `onShow` shows the frame or row of a finding. */
export function Findings({ data, onShow }: { data: Data; onShow: (finding: Finding) => void }) {
  const findings = data.head.findings ?? [];
  if (!settings.value.findings || findings.length === 0) return null;
  const { from, process, thread, job } = settings.value;
  const isPart = from >= 0 || process >= 0 || thread >= 0 || job >= 0;
  return (
    <aside class="findings" aria-label="Findings">
      <h2>
        {isPart ? 'Findings of the whole run' : 'Findings'}
        <button type="button" class="close" title="Hide the findings (f)" aria-label="Hide the findings" onClick={() => change({ findings: false })}>
          ✕
        </button>
      </h2>
      <ol>
        {findings.map((finding, at) => (
          <li key={at} class={finding.kind}>
            <button type="button" title={finding.what} disabled={finding.node === null && finding.place === null} onClick={() => onShow(finding)}>
              <Breakable text={short(finding, finding.what)} />
            </button>
            <ul>
              {finding.evidence.map((text) => (
                <li key={text}>
                  <Breakable text={short(finding, text)} />
                </li>
              ))}
            </ul>
            <p>{finding.advice}</p>
          </li>
        ))}
      </ol>
    </aside>
  );
}

/** Allows line breaks after the parts of paths and long names. */
function Breakable({ text }: { text: string }) {
  return (
    <>
      {text.split(/(?<=[/:_])/).map((part, at) => (
        <Fragment key={at}>
          {part}
          <wbr />
        </Fragment>
      ))}
    </>
  );
}

/** Shortens files as elsewhere on the page. */
function short(finding: Finding, text: string): string {
  for (const location of [finding.place, finding.caller]) if (location) text = text.replace(location.file, shortFile(location.file));
  return text;
}

/** A button that shows hidden findings again. */
export function FindingsToggle({ data }: { data: Data }) {
  const n = data.head.findings?.length ?? 0;
  if (n === 0 || settings.value.findings) return null;
  return (
    <button type="button" class="plain" title="Show the findings (f)" onClick={() => change({ findings: true })}>
      {`Findings (${n})`}
    </button>
  );
}
