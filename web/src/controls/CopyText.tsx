/** A button that copies a text and shows whether it succeeded. */
import { useSignal } from '@preact/signals';
import { copyText } from '../table/copy.ts';

export function CopyText({ text, what }: { text: () => string; what: string }) {
  const status = useSignal('');
  const copy = async () => (status.value = (await copyText(text())) ? 'copied' : 'the browser denied access to the clipboard');
  return (
    <p class="copy">
      <button type="button" class="plain" onClick={() => void copy()}>
        Copy {what}
      </button>
      <output aria-live="polite">{status.value}</output>
    </p>
  );
}
