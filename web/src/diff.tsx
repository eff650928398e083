/** The page of `heaptide diff --html`. */
import { useSignal } from '@preact/signals';
import { render } from 'preact';
import { useEffect, useMemo } from 'preact/hooks';
import { commonKey, isTyping, MeasureChoice } from './controls/Choice.tsx';
import { Help } from './controls/Help.tsx';
import { DiffControls } from './diff/Controls.tsx';
import { Curves } from './diff/Curves.tsx';
import { DiffTable } from './diff/DiffTable.tsx';
import { DiffHeader } from './diff/Header.tsx';
import { DiffLegend } from './diff/Legend.tsx';
import { changeKey, changeRows, KEYS } from './diff/page.ts';
import { FlameView } from './flame/FlameView.tsx';
import { openSession, type Session } from './flame/session.ts';
import { toggleTheme } from './header/Header.tsx';
import { dataOfPage } from './model/data.ts';
import { settings, startState } from './state.ts';
import './style.css';
import './table/table.css';

function Page({ session }: { session: Session }) {
  const isHelp = useSignal(false);
  const rows = useMemo(() => changeRows(session), [session]);
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if (isHelp.value || isTyping(event)) return;
      const isOurs =
        commonKey(session.data, event.key, () => (isHelp.value = true), toggleTheme) ||
        changeKey(session, event.key);
      if (isOurs) event.preventDefault();
    };
    window.addEventListener('keydown', onKey);
    return () => window.removeEventListener('keydown', onKey);
  }, [session]);
  const isGraph = settings.value.view === 'graph';
  return (
    <main class="flame-page">
      <DiffHeader data={session.data} onHelp={() => (isHelp.value = true)} />
      <Curves data={session.data} />
      <DiffControls session={session} rows={isGraph ? [] : rows.value} first={<MeasureChoice data={session.data} />} />
      {isGraph ? <FlameView session={session} /> : <DiffTable rows={rows.value} />}
      <DiffLegend data={session.data} />
      {isHelp.value && (
        <Help
          keys={KEYS}
          note="A click on a row of the table shows its stack in the graph. The address of the page keeps the view: copy it to share what you see."
          onClose={() => (isHelp.value = false)}
        />
      )}
    </main>
  );
}

dataOfPage().then(
  (data) => {
    document.title = `${data.head.processes[0]?.command_line || 'program'} · diff · Heaptide`;
    startState(data);
    const root = document.getElementById('page')!;
    root.replaceChildren();
    render(<Page session={openSession(data)} />, root);
    document.documentElement.dataset.ready = 'true';
  },
  (error: unknown) => {
    document.querySelector('.wait')!.textContent = `This page cannot be shown: ${error instanceof Error ? error.message : error}`;
  },
);
