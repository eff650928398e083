/**
 * State of the view, in signals and in the fragment of the address, so that a link shares the view. The fragment contains
 * only differences from the initial view.
 */
import { computed, effect, signal } from '@preact/signals';
import type { Data, Measure, Unit } from './model/data.ts';
import { type IntervalView, WHOLE_RUN } from './model/intervals.ts';
import type { Shape, Width } from './model/tree.ts';

export type Theme = 'auto' | 'light' | 'dark';
export type Grouping = 'stack' | 'location' | 'function' | 'file' | 'module';

export interface Settings {
  measure: Measure;
  /** Edges of the selected interval, −1 without one, and its view. */
  from: number;
  to: number;
  kind: IntervalView;
  unit: Unit;
  process: number;
  thread: number;
  job: number;
  inverted: boolean;
  merge: 'line' | 'function';
  hideImports: boolean;
  hideNative: boolean;
  hideInterpreter: boolean;
  myCode: boolean;
  splitThreads: boolean;
  /** Root at the top or at the bottom. */
  orientation: 'icicle' | 'flame';
  search: string;
  /** Keys from the root down to the zoomed frame. */
  zoom: number[];
  theme: Theme;
  grouping: Grouping;
  splitAllocators: boolean;
  sort: string;
  /** In a comparison: the meaning of a frame's width, and graph or table. */
  width: Width;
  view: 'graph' | 'table';
  findings: boolean;
  /** For a timeline. */
  layout: 'stacked' | 'side';
  curve: 'heap' | 'resident';
  /** For a heap: tab, kind, and address of an object. */
  tab: 'types' | 'tree' | 'suspects';
  type: string;
  object: string;
  /** For a table: the row whose stacks are shown. */
  row: string;
  /** The name of the selected job. */
  jobName: string;
}

export const FIRST: Settings = {
  measure: 'peak',
  ...WHOLE_RUN,
  unit: 'bytes',
  process: -1,
  thread: -1,
  job: -1,
  inverted: false,
  merge: 'line',
  // Six frames of the import system separate any two modules and would obscure the stack.
  hideImports: true,
  hideNative: false,
  // Calls between Python functions pass through several of them.
  hideInterpreter: true,
  myCode: false,
  splitThreads: false,
  orientation: 'icicle',
  search: '',
  zoom: [],
  theme: 'auto',
  grouping: 'location',
  splitAllocators: false,
  sort: '-own',
  width: 'change',
  view: 'graph',
  findings: true,
  layout: 'stacked',
  curve: 'heap',
  tab: 'types',
  type: '',
  object: '',
  row: '',
  jobName: '',
};

/** Allowed values of enumerated settings. */
const ALLOWED: Partial<Record<keyof Settings, readonly string[]>> = {
  measure: ['peak', 'leaked', 'total', 'temporary'],
  kind: ['kept', 'allocated', 'growth'],
  unit: ['bytes', 'count'],
  merge: ['line', 'function'],
  orientation: ['icicle', 'flame'],
  theme: ['auto', 'light', 'dark'],
  width: ['change', 'both', 'after', 'before'],
  view: ['graph', 'table'],
  layout: ['stacked', 'side'],
  curve: ['heap', 'resident'],
  tab: ['types', 'tree', 'suspects'],
  grouping: ['stack', 'location', 'function', 'file', 'module'],
};

export function toHash(settings: Settings, first: Settings): string {
  const parameters = new URLSearchParams();
  for (const name of Object.keys(first) as (keyof Settings)[]) {
    const value = String(settings[name]);
    if (value !== String(first[name])) parameters.set(name, name === 'zoom' ? settings.zoom.join('.') : value);
  }
  return parameters.toString();
}

/** Reads settings from a fragment. Invalid values keep their initial value. */
export function fromHash(hash: string, first: Settings, data: Data): Settings {
  const parameters = new URLSearchParams(hash.replace(/^#/, ''));
  const settings: Settings = { ...first };
  const nEdges = data.lives?.edges.length ?? 0;
  const numbers = { process: data.head.processes.length, thread: data.head.threads.length, job: (data.head.jobs?.length ?? 0) + 1, from: nEdges, to: nEdges };
  for (const [name, text] of parameters) {
    if (!(name in first)) continue;
    const key = name as keyof Settings;
    const allowed = ALLOWED[key];
    if (key === 'zoom') {
      const zoom = text.split('.').filter(Boolean).map(Number);
      settings.zoom = zoom.every(Number.isInteger) ? zoom : [];
    } else if (key === 'process' || key === 'thread' || key === 'job' || key === 'from' || key === 'to') {
      const number = Number(text);
      if (Number.isInteger(number) && number >= -1 && number < numbers[key]) settings[key] = number;
    } else if (typeof first[key] === 'boolean') {
      Object.assign(settings, { [key]: text === 'true' });
    } else if (!allowed || allowed.includes(text)) {
      Object.assign(settings, { [key]: text });
    }
  }
  // A link from the jobs page names a job; pages of captures number them.
  const at = (data.head as { jobs?: string[] }).jobs?.indexOf(settings.jobName) ?? -1;
  if (at >= 0) Object.assign(settings, { job: at, jobName: '' });
  // Ignore half an interval, and a measure that this page lacks.
  if (settings.from < 0 || settings.to <= settings.from) Object.assign(settings, { from: first.from, to: first.to });
  if (!data.head.measures.includes(settings.measure)) settings.measure = first.measure;
  return settings;
}

export const settings = signal<Settings>(FIRST);
/** The settings that the tree depends on. Equal values keep their identity, so that a theme change builds no tree. */
export const shape = computed<Shape>(() => {
  const { measure, from, to, kind, unit, process, thread, job, inverted, merge, hideImports, hideNative, hideInterpreter, myCode, splitThreads, width } = settings.value;
  const next: Shape = { measure, from, to, kind, unit, process, thread, job, inverted, merge, hideImports, hideNative, hideInterpreter, myCode, splitThreads, width };
  const isSame = lastShape && (Object.keys(next) as (keyof Shape)[]).every((name) => next[name] === lastShape![name]);
  return isSame ? lastShape! : (lastShape = next);
});
let lastShape: Shape | undefined;

export function change(some: Partial<Settings>): void {
  settings.value = { ...settings.value, ...some };
}

function firstSettings({ head }: Data): Settings {
  const { measure, inverted, split_threads, by_line } = head.first_view;
  const first: Settings = { ...FIRST, measure, inverted, splitThreads: split_threads };
  if (!head.diff) return first;
  const isSampled = head.diff.before.sampled_every_bytes !== null || head.diff.after.sampled_every_bytes !== null;
  return {
    ...first,
    // An edit moves lines, so compare functions.
    merge: by_line ? 'line' : 'function',
    grouping: 'stack',
    sort: '-change',
    // In samples, every frame changes by chance.
    width: isSampled ? 'both' : 'change',
  };
}

/** Data for the state of a page without a recording: it has neither threads nor measures. */
export const NO_RECORDING = {
  head: { processes: [], threads: [], measures: ['peak'], first_view: { measure: 'peak', inverted: false, split_threads: false } },
  lives: undefined,
} as unknown as Data;

/** Reads the address and keeps it up to date. `more` are initial settings of this page. */
export function startState(data: Data, more: Partial<Settings> = {}): void {
  const first = { ...firstSettings(data), ...more };
  settings.value = fromHash(location.hash, first, data);
  window.addEventListener('hashchange', () => {
    if (location.hash.replace(/^#/, '') !== toHash(settings.value, first)) {
      settings.value = fromHash(location.hash, first, data);
    }
  });
  effect(() => {
    const hash = toHash(settings.value, first);
    if (hash !== location.hash.replace(/^#/, '')) {
      history.replaceState(null, '', hash ? `#${hash}` : location.pathname + location.search);
    }
  });
  effect(() => {
    const theme = isPrinting.value ? 'light' : settings.value.theme;
    if (theme === 'auto') delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
  });
}

const prefersDark = matchMedia('(prefers-color-scheme: dark)');
const systemIsDark = signal(prefersDark.matches);
prefersDark.addEventListener('change', (event) => (systemIsDark.value = event.matches));

/** Whether the page is being printed: in light colours, and without scrolling. */
export const isPrinting = signal(false);
window.addEventListener('beforeprint', () => (isPrinting.value = true));
window.addEventListener('afterprint', () => (isPrinting.value = false));

export const isDark = computed(() => {
  if (isPrinting.value) return false;
  return settings.value.theme === 'auto' ? systemIsDark.value : settings.value.theme === 'dark';
});
