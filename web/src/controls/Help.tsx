/** Dialog that lists all keys of a page. */
import { useEffect, useRef } from 'preact/hooks';

export type Keys = readonly (readonly [string, string])[];

export const COMMON_KEYS: Keys = [
  ['/', 'search; Escape leaves the field'],
  ['m', 'next measure: at the peak, leaked, total, …'],
  ['r', 'go to the chart: arrow keys select an interval, with Shift its start'],
  ['x', 'clear the interval'],
  ['b', 'switch between bytes and number of allocations'],
  ['t  p  j', 'select a thread, a process, a job'],
  ['f', 'show or hide the findings'],
  ['d', 'switch between light and dark'],
  ['?', 'show this list'],
];

/** `only` replaces the common keys on a page that lacks them. */
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
