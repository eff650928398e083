/** Frame of all pages: reads their data, handles keys and shows the list of keys. */
import { useSignal } from '@preact/signals';
import { type ComponentChildren, render, type VNode } from 'preact';
import { useEffect } from 'preact/hooks';
import { isTyping } from './Choice.tsx';
import { Help, type Keys } from './Help.tsx';

/** `onKey` handles a key and returns whether it did; `help` opens the list of keys. */
export function Shell(props: {
  className: string;
  keys?: Keys;
  onlyKeys?: Keys;
  note?: string;
  onKey: (key: string, help: () => void) => boolean;
  children: (help: () => void) => ComponentChildren;
}) {
  const isHelp = useSignal(false);
  const help = () => (isHelp.value = true);
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if (isHelp.value || isTyping(event)) return;
      if (props.onKey(event.key, help)) event.preventDefault();
    };
    window.addEventListener('keydown', onKey);
    return () => window.removeEventListener('keydown', onKey);
  }, []);
  const note = `${props.note ?? ''} The address of the page contains the view: copy it to share what you see.`.trim();
  return (
    <main class={props.className}>
      {props.children(help)}
      {isHelp.value && <Help keys={props.keys} only={props.onlyKeys} note={note} onClose={() => (isHelp.value = false)} />}
    </main>
  );
}

/** Shows a page once its data has been read, or the reason why it cannot be shown. */
export function showPage<D>(data: Promise<D>, open: (data: D) => { title: string; page: VNode }): void {
  data.then(
    (read) => {
      const { title, page } = open(read);
      document.title = `${title} · Heaptide`;
      const root = document.getElementById('page')!;
      root.replaceChildren();
      render(page, root);
      document.documentElement.dataset.ready = 'true';
    },
    (error: unknown) => {
      document.querySelector('.wait')!.textContent = `This page cannot be shown: ${error instanceof Error ? error.message : error}`;
    },
  );
}
