/** Formats numbers and names for display. Only this file rounds. */
import { CUT, type Data, NO_FRAMES, ROOT, threadName, type Unit } from './data.ts';
import { OTHERS, THREADS, type Tree } from './tree.ts';

const UNITS = ['B', 'kB', 'MB', 'GB', 'TB', 'PB'];

/** Formats with three significant digits: `72.6 MB`, `999 B`. */
export function bytes(value: number): string {
  let at = 0;
  while (value >= 999.5 && at < UNITS.length - 1) {
    value /= 1000;
    at++;
  }
  const digits = at === 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  return `${value.toFixed(digits)} ${UNITS[at]}`;
}

/** Formats all digits, in groups of three. */
export function whole(value: number): string {
  return Math.round(value).toString().replace(/\B(?=(\d{3})+$)/g, ',');
}

export function amount(value: number, unit: Unit): string {
  return unit === 'bytes' ? bytes(value) : whole(value);
}

/** Formats with a sign: `+4.00 MB`. */
export function signed(value: number, unit: Unit): string {
  const sign = value < 0 ? '−' : '+';
  return `${sign}${amount(Math.abs(value), unit)}`;
}

/** Formats a change as a share of the earlier value; `new` if that was zero. */
export function changePercent(before: number, change: number): string {
  if (change === 0) return '0%';
  if (before === 0) return 'new';
  // Larger percentages are hard to read.
  if (change >= 10 * before) return `× ${whole((before + change) / before)}`;
  return `${change < 0 ? '−' : '+'}${percent(Math.abs(change), before)}`;
}

/** Formats a share with two significant digits: `74%`, `7.4%`. From 99 on three, so that only 99.95 and more become `100%`. */
export function percent(part: number, all: number): string {
  if (all === 0) return '0%';
  const value = (part / all) * 100;
  if (value === 0) return '0%';
  if (value < 0.01) return '<0.01%';
  const isWhole = value >= 99.95 || (value >= 9.95 && value < 99);
  return `${value.toFixed(isWhole ? 0 : value >= 0.995 ? 1 : 2)}%`;
}

/** Formats a duration: `9 µs`, `1.5 ms`, `12 ms`, `1.53 s`, `1:02:03 h`. */
export function duration(ns: number): string {
  const seconds = ns / 1e9;
  if (seconds === 0) return '0 s';
  // The limits lie where rounding reaches the next unit or digit.
  if (seconds < 999.5e-6) return `${Math.max(1, Math.round(seconds * 1e6))} µs`;
  if (seconds < 999.5e-3) return `${(seconds * 1000).toFixed(seconds < 9.95e-3 ? 1 : 0)} ms`;
  if (seconds < 99.95) return `${seconds.toFixed(seconds < 9.995 ? 2 : 1)} s`;
  return clock(Math.max(100, seconds), seconds);
}

/** Formats in minutes or hours, whichever suits the longest time beside it. */
function clock(seconds: number, longest: number): string {
  const minutes = Math.floor(seconds / 60);
  const two = (value: number) => String(Math.floor(value)).padStart(2, '0');
  if (longest < 3600) return `${minutes}:${two(seconds % 60)} min`;
  return `${Math.floor(minutes / 60)}:${two(minutes % 60)}:${two(seconds % 60)} h`;
}

/** Formats the times of an axis, all in one unit and with the same decimals: `0.50 s`, `1.00 s`. */
export function axisTimes(seconds: readonly number[]): string[] {
  const longest = seconds.at(-1) ?? 0;
  if (longest >= 100) return seconds.map((at) => (at === 0 ? '0' : clock(at, longest)));
  const [unit, factor] = longest >= 1 ? ['s', 1] : longest >= 1e-3 ? ['ms', 1e3] : ['µs', 1e6];
  const isExact = (decimals: number) => seconds.every((at) => Math.abs(at * factor - Number((at * factor).toFixed(decimals))) < 1e-9);
  const decimals = [0, 1, 2].find(isExact) ?? 3;
  return seconds.map((at) => (at === 0 ? '0' : `${(at * factor).toFixed(decimals)} ${unit}`));
}

export function plural(n: number, one: string, many = `${one}s`): string {
  return `${whole(n)} ${n === 1 ? one : many}`;
}

/** Shortens a path: the part after `site-packages`, or the last parts. */
export function shortFile(file: string): string {
  const installed = /(?:site|dist)-packages\/(.*)$/.exec(file)?.[1];
  if (installed) return installed;
  const parts = file.split('/');
  return parts.length > 3 ? `…/${parts.slice(-2).join('/')}` : file;
}

export interface Label {
  name: string;
  /** File and line; empty for nodes that are not in a file. */
  location: string;
}

/** Returns the name and location of a frame; with `byLine` including its line. */
export function label(data: Data, tree: Tree, node: number, byLine: boolean): Label {
  const key = tree.key[node]!;
  if (key <= THREADS) return { name: threadName(data, THREADS - key), location: '' };
  if (key === ROOT) return { name: 'all', location: '' };
  if (key === NO_FRAMES) return { name: 'no Python frame', location: '' };
  if (key === OTHERS) return { name: 'no frame of my code', location: '' };
  if (key === CUT) {
    const n = tree.nCut[node]!;
    return { name: `… ${plural(n, 'frame')} below ${share(tree.minShare)}`, location: '' };
  }
  return { name: functionName(data, key), location: locationName(data, key, byLine) };
}

export function functionName(data: Data, location: number): string {
  return data.texts[data.locations.function[location]!]!;
}

export function locationName(data: Data, location: number, byLine: boolean): string {
  const file = data.texts[data.locations.file[location]!]!;
  const line = data.locations.line[location]!;
  // Arenas and some native functions have no line.
  return byLine && line > 0 ? `${file}:${line}` : file;
}

function share(value: number): string {
  return `${Number((value * 100).toPrecision(2))}%`;
}
