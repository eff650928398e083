/** The page of `heaptide flamegraph`. */
import { useSignal } from '@preact/signals';
import { render } from 'preact';
import { useEffect } from 'preact/hooks';
import { Timeline } from './chart/Timeline.tsx';
import { commonKey, isTyping } from './controls/Choice.tsx';
import { Help, type Keys } from './controls/Help.tsx';
import { Controls } from './flame/Controls.tsx';
import { DiffLegend } from './diff/Legend.tsx';
import { Findings } from './findings/Findings.tsx';
import { showInGraph } from './findings/show.ts';
import { FlameView } from './flame/FlameView.tsx';
import { graphKey } from './flame/keys.ts';
import { Legend } from './flame/Legend.tsx';
import { openSession, type Session } from './flame/session.ts';
import { Header, toggleTheme } from './header/Header.tsx';
import { type Data, dataOfPage } from './model/data.ts';
import { startState } from './state.ts';
import './style.css';

const KEYS: Keys = [
  ['←  →  ↑  ↓', 'move from frame to frame'],
  ['Enter', 'zoom to the frame; once more zooms out'],
  ['Backspace', 'zoom out by one frame'],
  ['Escape', 'clear the search, then zoom out'],
  ['n  N', 'next and previous match of the search'],
  ['i', 'upside down: who allocated, and who called it'],
  ['l', 'merge frames by function or by line'],
  ['h', 'hide frames of the import system'],
  ['k', 'hide native frames, if the capture has them'],
  ['s', 'split by thread'],
  ['o', 'root at the top or at the bottom'],
];

function Page({ session }: { session: Session }) {
  const isHelp = useSignal(false);
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if (isHelp.value || isTyping(event)) return;
      if (commonKey(session.data, event.key, () => (isHelp.value = true), toggleTheme) || graphKey(session, event.key)) {
        event.preventDefault();
      }
    };
    window.addEventListener('keydown', onKey);
    return () => window.removeEventListener('keydown', onKey);
  }, [session]);
  return (
    <main class="flame-page">
      <Header data={session.data} what="flame graph" onHelp={() => (isHelp.value = true)} />
      <Timeline data={session.data} />
      <Controls session={session} />
      <div class="beside">
        <FlameView session={session} />
        <Findings data={session.data} onShow={(finding) => showInGraph(session.data, finding)} />
      </div>
      {session.tree.value.sides ? <DiffLegend data={session.data} /> : <Legend session={session} />}
      {isHelp.value && (
        <Help
          keys={KEYS}
          note="A click does what Enter does. The address of the page keeps the view: copy it to share what you see."
          onClose={() => (isHelp.value = false)}
        />
      )}
    </main>
  );
}

export function start(data: Data): void {
  document.title = `${data.head.processes[0]?.command_line || 'program'} · flame graph · Heaptide`;
  startState(data);
  const root = document.getElementById('page')!;
  root.replaceChildren();
  render(<Page session={openSession(data)} />, root);
  document.documentElement.dataset.ready = 'true';
}

dataOfPage().then(start, (error: unknown) => {
  document.querySelector('.wait')!.textContent = `This page cannot be shown: ${error instanceof Error ? error.message : error}`;
});
