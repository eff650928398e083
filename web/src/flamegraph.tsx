/** The page of `heaptide flamegraph`. */
import { useSignal } from '@preact/signals';
import { render } from 'preact';
import { useEffect } from 'preact/hooks';
import { Timeline } from './chart/Timeline.tsx';
import { commonKey, isTyping } from './controls/Choice.tsx';
import { Help, type Keys } from './controls/Help.tsx';
import { Controls, nextMatch } from './flame/Controls.tsx';
import { FlameView, resetZoom } from './flame/FlameView.tsx';
import { Legend } from './flame/Legend.tsx';
import { openSession, type Session } from './flame/session.ts';
import { Header, toggleTheme } from './header/Header.tsx';
import { type Data, dataOfPage } from './model/data.ts';
import { change, settings, startState } from './state.ts';
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
  ['s', 'split by thread'],
  ['o', 'root at the top or at the bottom'],
];

function Page({ session }: { session: Session }) {
  const isHelp = useSignal(false);
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if (isHelp.value || isTyping(event)) return;
      if (commonKey(event.key, () => (isHelp.value = true), toggleTheme) || graphKey(session, event.key)) {
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
      <FlameView session={session} />
      <Legend session={session} />
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

function graphKey(session: Session, key: string): boolean {
  const now = settings.value;
  switch (key) {
    case 'i':
      change({ inverted: !now.inverted, zoom: [] });
      return true;
    case 'l':
      change({ merge: now.merge === 'line' ? 'function' : 'line' });
      return true;
    case 'h':
      change({ hideImports: !now.hideImports });
      return true;
    case 's':
      change({ splitThreads: !now.splitThreads, zoom: [] });
      return true;
    case 'o':
      change({ orientation: now.orientation === 'icicle' ? 'flame' : 'icicle' });
      return true;
    case 'n':
    case 'N':
      nextMatch(session, key === 'n' ? 1 : -1);
      return true;
    case 'Backspace':
      session.zoomTo(session.tree.value.parent[session.zoom.value]!);
      return true;
    case 'Escape':
      if (now.search) change({ search: '' });
      else resetZoom();
      return true;
    case 'ArrowDown':
    case 'ArrowUp':
    case 'ArrowLeft':
    case 'ArrowRight':
    case 'Enter': {
      // The keys of the graph work from anywhere but a control.
      const canvas = document.querySelector('canvas[role=application]') as HTMLCanvasElement | null;
      if (!canvas || document.activeElement !== document.body) return false;
      canvas.focus();
      canvas.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: false }));
      return true;
    }
    default:
      return false;
  }
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
