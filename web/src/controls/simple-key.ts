/** The keys that every page has. */
import { toggleTheme } from '../header/Header.tsx';

/** Handles a key; returns whether it was one of these. */
export function simpleKey(key: string, help: () => void): boolean {
  if (key === '?') help();
  else if (key === 'd') toggleTheme();
  else return false;
  return true;
}
