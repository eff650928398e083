/** All keys of a page, in a dialog. */
import { useEffect, useRef } from 'preact/hooks';

export type Keys = readonly (readonly [string, string])[];

export const COMMON_KEYS: Keys = [
  ['/', 'search; Escape leaves it'],
  ['m', 'next: at the peak, leaked, total, …'],
  ['r', 'to the chart: arrow keys choose an interval, with Shift its beginning'],
  ['x', 'leave the interval'],
  ['b', 'bytes or number of allocations'],
  ['t  p', 'choose a thread, a process'],
  ['f', 'show or hide the findings'],
  ['d', 'light or dark'],
  ['?', 'this list'],
];

/** `only` are all keys of a page that lacks the common ones. */
export function Help({ keys = [], only, note, onClose }: { keys?: Keys; only?: Keys; note: string; onClose: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => dialog.current!.showModal(), []);
  return (
    <dialog ref={dialog} class="help" aria-label="Keys" onClose={onClose} onClick={(event) => event.target === dialog.current && dialog.current!.close()}>
      <h2>Keys</h2>
      <dl>
        {(only ?? [...keys, ...COMMON_KEYS]).map(([key, text]) => (
          <div key={key}>
            <dt>
              {key.split('  ').map((one) => (
                <kbd key={one}>{one}</kbd>
              ))}
            </dt>
            <dd>{text}</dd>
          </div>
        ))}
      </dl>
      <p>{note}</p>
      <button type="button" onClick={() => dialog.current!.close()}>
        Close
      </button>
    </dialog>
  );
}
