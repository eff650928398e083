/**
 * A group of buttons with one tab stop: Tab enters and leaves the group, arrow keys move within it. The button that had the
 * focus last, or the selected one, is the tab stop.
 */
import type { ComponentChildren } from 'preact';
import { useLayoutEffect, useRef } from 'preact/hooks';

const BUTTONS = 'button:not(:disabled)';
const STEPS: Record<string, number> = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };

export function Group(props: { label: string; className: string; role?: 'toolbar' | 'radiogroup'; children: ComponentChildren }) {
  const box = useRef<HTMLDivElement>(null);
  const { role = 'toolbar' } = props;
  const buttons = () => [...box.current!.querySelectorAll<HTMLButtonElement>(BUTTONS)];
  const setStop = (stop: HTMLButtonElement | undefined) => buttons().forEach((button) => (button.tabIndex = button === stop ? 0 : -1));
  // After every rendering, because buttons come and go.
  useLayoutEffect(() => {
    const all = buttons();
    const selected = role === 'radiogroup' ? all.find((button) => button.ariaChecked === 'true') : all.find((button) => button.tabIndex === 0);
    setStop(selected ?? all[0]);
  });
  const onKey = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const all = buttons();
    const at = all.indexOf(document.activeElement as HTMLButtonElement);
    const step = STEPS[event.key];
    const next = step !== undefined ? all.at((at + step) % all.length) : event.key === 'Home' ? all[0] : event.key === 'End' ? all.at(-1) : undefined;
    if (at < 0 || !next) return;
    event.preventDefault();
    event.stopPropagation();
    setStop(next);
    next.focus();
    if (role === 'radiogroup') next.click();
  };
  return (
    <div
      class={props.className}
      role={role}
      aria-label={props.label}
      ref={box}
      onKeyDown={onKey}
      onFocusIn={(event) => setStop(event.target as HTMLButtonElement)}
    >
      {props.children}
    </div>
  );
}
