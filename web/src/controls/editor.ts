/** Addresses that open a source line in an editor, and the user's choice of one, kept by the browser. */

/** Names of editors and the forms of their addresses. */
export const EDITORS: readonly (readonly [string, string])[] = [
  ['VS Code', 'vscode://file{file}:{line}'],
  ['Cursor', 'cursor://file{file}:{line}'],
  ['Zed', 'zed://file{file}:{line}'],
  ['PyCharm', 'jetbrains://pycharm/navigate/reference?path={file}:{line}'],
  ['Sublime Text', 'subl://open?url=file://{file}&line={line}'],
];

const NAME = 'heaptide-editor';

export function rememberedEditor(): string {
  try {
    return localStorage.getItem(NAME) ?? EDITORS[0]![1];
  } catch {
    // In a notebook's frame, pages have no storage.
    return EDITORS[0]![1];
  }
}

export function rememberEditor(template: string): void {
  try {
    localStorage.setItem(NAME, template);
  } catch {
    // The choice then holds until the page is closed.
  }
}

/** Returns the address of a line; undefined if it is not in a file. Relative paths start from `folder`. */
export function editorAddress(at: { file: string; line: number }, folder: string, template: string): string | undefined {
  if (at.line <= 0 || at.file.startsWith('<')) return undefined;
  // An address of a script would run with the page.
  if (!/^[a-z][a-z0-9+.-]*:/i.test(template) || /^(javascript|data|vbscript|blob):/i.test(template)) return undefined;
  const file = at.file.startsWith('/') ? at.file : `${folder}/${at.file}`;
  const parts = { file: encodeURI(file).replace(/[?#]/g, encodeURIComponent), line: String(at.line) };
  return template.replace(/\{(file|line)\}/g, (_, name: 'file' | 'line') => parts[name]);
}
