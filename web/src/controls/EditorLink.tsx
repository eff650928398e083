/** A link that opens a line in the user's editor, and a list to select the editor. */
import { signal } from '@preact/signals';
import { EDITORS, editorAddress, rememberEditor, rememberedEditor } from './editor.ts';

/** The form of the address, the same for all links of a page. */
const template = signal(rememberedEditor());

/** Relative paths start from `folder`. */
export function EditorLink({ file, line, folder, id }: { file: string; line: number; folder: string; id?: string }) {
  const address = editorAddress({ file, line }, folder, template.value);
  if (!address) return null;
  return (
    <a class="editor-link" href={address} id={id} title="Open the line in an editor (e)">
      Open in editor
    </a>
  );
}

export function EditorChoice() {
  const choose = (wanted: string) => {
    const chosen = wanted === '' ? prompt('Address that opens a file, with {file} and {line}', template.value) : wanted;
    if (chosen) rememberEditor((template.value = chosen));
  };
  const isKnown = EDITORS.some(([, known]) => known === template.value);
  return (
    <select class="editor-choice" aria-label="Editor" value={template.value} onChange={(event) => choose(event.currentTarget.value)}>
      {EDITORS.map(([title, known]) => (
        <option key={title} value={known}>
          {title}
        </option>
      ))}
      {!isKnown && <option value={template.value}>{template.value}</option>}
      <option value="">other …</option>
    </select>
  );
}
