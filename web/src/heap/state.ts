/** What of a heap is looked at: a tab, a kind, an object, and how to go back from it. */
import { change, settings } from '../state.ts';

export type Tab = 'types' | 'tree' | 'suspects';

const places: { tab: Tab; type: string; object: string }[] = [];

/** Goes somewhere; `back` returns. */
export function go(to: Partial<{ tab: Tab; type: string; object: string }>): void {
  const { tab, type, object } = settings.value;
  places.push({ tab, type, object });
  change(to);
}

export function back(): void {
  const last = places.pop();
  if (last) change(last);
  else if (settings.value.object !== '') change({ object: '' });
  else change({ type: '' });
}
