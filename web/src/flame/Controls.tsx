/** Search and choices above the flame graph. */
import { IntervalChoice } from '../controls/IntervalChoice.tsx';
import { Choice, MeasureChoice, Toggle, UnitChoice, WhoChoice } from '../controls/Choice.tsx';
import { SearchField } from '../controls/SearchField.tsx';
import { FindingsToggle } from '../findings/Findings.tsx';
import { amount, percent, plural, signed } from '../model/format.ts';
import { change, settings } from '../state.ts';
import type { Session } from './session.ts';

export function Controls({ session }: { session: Session }) {
  const now = settings.value;
  const hasImports = session.data.locations.import_system.some(Boolean);
  const hasNative = session.data.locations.library.some((name) => name >= 0);
  const hasThreads = new Set(session.data.origins.thread).size > 1;
  return (
    <nav class="controls" aria-label="What is shown">
      {now.from < 0 ? <MeasureChoice data={session.data} /> : <IntervalChoice data={session.data} />}
      <UnitChoice />
      <WhoChoice data={session.data} />
      <span class="group">
        <Toggle text="Inverted" title="Who allocated first, and below it who called it (i)" value={now.inverted} onChange={(inverted) => change({ inverted, zoom: [] })} />
        <Toggle
          text="By function"
          title="Merge frames on different lines of one function (l)"
          value={now.merge === 'function'}
          onChange={(on) => change({ merge: on ? 'function' : 'line' })}
        />
        {hasImports && (
          <Toggle text="Hide imports" title="Leave out frames of the import system (h)" value={now.hideImports} onChange={(hideImports) => change({ hideImports })} />
        )}
        {hasNative && (
          <Toggle text="Hide native" title="Leave out C, C++ and Rust functions (k)" value={now.hideNative} onChange={(hideNative) => change({ hideNative, zoom: [] })} />
        )}
        {hasThreads && (
          <Toggle text="Split threads" title="A tree for each thread (s)" value={now.splitThreads} onChange={(splitThreads) => change({ splitThreads, zoom: [] })} />
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
      <FindingsToggle data={session.data} />
      <Search session={session} />
    </nav>
  );
}

export function Search({ session }: { session: Session }) {
  const found = session.found.value;
  const tree = session.tree.value;
  let said = '';
  if (found) {
    const frames = plural(found.nodes.length, 'frame');
    if (tree.sides) said = `${frames} · ${signed(found.amount, tree.unit)}`;
    else said = `${frames} · ${amount(found.amount, tree.unit)} · ${percent(found.amount, tree.total[tree.unit][0]!)}`;
  }
  return (
    <SearchField
      placeholder="Search: function, file, module, regular expression"
      label="Search frames by a regular expression"
      said={said}
      onEnter={(isBack) => nextMatch(session, isBack ? -1 : 1)}
    />
  );
}

/** Chooses the next match, from left to right and row by row. */
export function nextMatch(session: Session, step: number): void {
  const found = session.found.value;
  if (!found || found.nodes.length === 0) return;
  const at = found.nodes.indexOf(session.selected.value);
  const next = at < 0 ? (step > 0 ? 0 : found.nodes.length - 1) : (at + step + found.nodes.length) % found.nodes.length;
  session.select(found.nodes[next]!);
  session.zoomTo(session.tree.value.parent[found.nodes[next]!]!);
}
