/** Copies the rows of a table as CSV, and shows a status until the rows change. */
import { useSignal } from '@preact/signals';
import { plural } from '../model/format.ts';
import { copyText } from './copy.ts';

/** Returns the button and its status. */
export function useCopy<Row>(rows: readonly Row[], csv: (rows: readonly Row[]) => string) {
  const done = useSignal<{ rows: readonly Row[]; status: string } | undefined>(undefined);
  const copy = async () => {
    const isDone = await copyText(csv(rows));
    done.value = { rows, status: isDone ? `${plural(rows.length, 'row')} copied` : 'the browser denied access to the clipboard' };
  };
  const button = (
    <button type="button" class="plain" id="copy" title="Copy these rows as CSV (c)" onClick={() => void copy()}>
      Copy as CSV
    </button>
  );
  return { button, status: done.value?.rows === rows ? done.value.status : '' };
}
