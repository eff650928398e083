/** Navigation of the heap page: tab, kind and object, with a history. */
import { change, settings } from '../state.ts';

export type Tab = 'types' | 'tree' | 'suspects';

const visited: { tab: Tab; type: string; object: string }[] = [];

/** Changes the view; `back` returns. */
export function go(to: Partial<{ tab: Tab; type: string; object: string }>): void {
  const { tab, type, object } = settings.value;
  visited.push({ tab, type, object });
  change(to);
}

export function back(): void {
  const last = visited.pop();
  if (last) change(last);
  else if (settings.value.object !== '') change({ object: '' });
  else change({ type: '' });
}
