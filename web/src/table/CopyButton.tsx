/** Copies the rows of a table as CSV, and says so until they are others. */
import { useSignal } from '@preact/signals';
import { plural } from '../model/format.ts';
import { copyText } from './copy.ts';

/** The button, and what there is to say. */
export function useCopy<Row>(rows: readonly Row[], csv: (rows: readonly Row[]) => string) {
  const done = useSignal<{ rows: readonly Row[]; said: string } | undefined>(undefined);
  const copy = async () => {
    const isDone = await copyText(csv(rows));
    done.value = { rows, said: isDone ? `${plural(rows.length, 'row')} copied` : 'the browser did not allow it' };
  };
  const button = (
    <button type="button" class="plain" id="copy" title="Copy these rows as CSV (c)" onClick={() => void copy()}>
      Copy as CSV
    </button>
  );
  return { button, said: done.value?.rows === rows ? done.value.said : '' };
}
