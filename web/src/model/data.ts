/**
 * The data embedded in a page, as `report::json::flame` writes it, unpacked into typed columns. Independent of how it is
 * shown.
 */
import { readEmbedded } from './embedded.ts';
import { ownersOfLocations } from './owners.ts';

export type Measure = 'peak' | 'leaked' | 'total' | 'temporary';
export type Unit = 'bytes' | 'count';

export interface Process {
  file: string;
  /** The process ID, with parts of the identity if another process of the page has the same ID: `1@web-2`. */
  name: string;
  /** The name with the role or program, and the host if there are several: `4711 (celery worker)`. */
  shown?: string;
  /** The role or program alone. */
  title?: string;
  labels?: Record<string, string>;
  run?: string | null;
  pid: number;
  parent_pid: number;
  command_line: string;
  executable: string;
  working_directory: string;
  host: string;
  python: string;
  python_allocator: string;
  mode: string;
  start_ns: number;
  end_ns: number;
  /** The peak of this process alone. */
  peak_ns: number;
  num_allocations: number;
  total_bytes: number;
  peak_bytes: number;
  /** Its share of the peak of the page. */
  at_peak_bytes: number;
  live_bytes: number;
  resident_peak_bytes: number | null;
  limit_bytes: number | null;
  own_memory_bytes: number;
  ended_in_order: boolean;
  /** Resident memory at exit, in rows that add up. */
  ledger: Record<string, number | null> | null;
  joined_late: boolean;
}

export interface Thread {
  process: number;
  os_id: number;
  name: string | null;
  is_main: boolean;
}

/** When a job ran. */
export interface JobSpan {
  /** Index in `Head.jobs`. */
  job: number;
  process: number;
  start_ns: number;
  end_ns: number;
  key: string | null;
  outcome: string;
}

export interface Head {
  format: number;
  profiler: string;
  start_time: string;
  start_unix_ms: number;
  duration_ns: number;
  peak_bytes: number;
  /** Time of the peak since the start; null if each process is at its own peak. */
  peak_ns: number | null;
  /** The moment of the peak, in words; null if the page covers one process. */
  peak_heading: string | null;
  min_share: number;
  measures: Measure[];
  first_view: { measure: Measure; inverted: boolean; split_threads: boolean; by_line?: boolean };
  warnings: string[];
  remarks: string[];
  /** Filters in effect when the page was made, as sentences. */
  filters: string[];
  processes: Process[];
  threads: Thread[];
  /** Names of jobs; origins refer to them. */
  jobs?: string[];
  /** The longest runs of jobs, ordered by start. */
  job_spans?: JobSpan[];
  /** Number of jobs that are not in `job_spans`. */
  num_more_jobs?: number;
  findings?: Finding[];
  /** Only in a comparison. The first `n_before` processes belong to the earlier side. */
  diff?: DiffHead;
}

/** A finding, worded as in all other reports. */
export interface Finding {
  kind: string;
  what: string;
  evidence: string[];
  advice: string;
  place: SourceLocation | null;
  caller: SourceLocation | null;
  /** The node it refers to; `null` if that was cut, or if the finding is about the whole program. */
  node: number | null;
}

export interface SourceLocation {
  function: string;
  file: string;
  line: number;
}

export interface DiffHead {
  n_before: number;
  before: DiffSide;
  after: DiffSide;
  whole: Record<Measure, WholeChange>;
  /** About the comparison, for example if its sides were recorded in different modes. */
  warnings: string[];
}

export interface DiffSide {
  duration_ns: number;
  num_allocations: number;
  resident_peak_bytes: number | null;
  sampled_every_bytes: number | null;
  processes: { file: string; pid: number; command_line: string }[];
  warnings: string[];
}

export interface WholeChange {
  before_bytes: number;
  after_bytes: number;
  change_bytes: number;
  error_bytes: number;
  is_noise: boolean;
}

export interface Curves {
  heap: (number | null)[];
  resident: (number | null)[];
}

/** The data as it is written. */
export interface Packed {
  head: Head;
  /** `stacked`: for each bin, the heap of each process at the time when the sum of all was largest. */
  timeline: { bin_ns: number; together: Curves; processes: Curves[]; stacked?: Curves['heap'][] };
  texts: string[];
  locations: {
    function: number[];
    file: number[];
    line: number[];
    module: number[];
    import_system: number[];
    /** The library of a native function; −1 for Python functions. */
    library: number[];
    source: string[];
  };
  /** Who wrote each file and native library: see `owners.ts`. */
  owners: { text: number[]; owner: number[] };
  nodes: { up: number[]; place: number[] };
  /** `job` is −1 for allocations outside of jobs; missing if the capture has no jobs. */
  origins: { thread: number[]; allocator: string[]; job?: number[] };
  own: { step: number[]; origin: number[] } & Record<Measure, { bytes: number[]; count: number[]; variance?: number[] }>;
  /** When blocks were allocated and freed, in bins of time; see `docs/reference/page-data.md`. */
  lives?: { edges_ns: number[]; step: number[]; birth: number[]; age: number[]; bytes: number[]; count: number[] };
}

/** Values instead of a location. */
export const ROOT = -1;
export const NO_FRAMES = -2;
/** Frames that were too small to show; `nCut` has their number. */
export const CUT = -3;

export interface Amounts {
  bytes: Float64Array;
  count: Float64Array;
  /** Variance of the bytes, in square KiB; only for samples. */
  variance: Float64Array | undefined;
}

export interface Data {
  head: Head;
  timeline: Packed['timeline'];
  texts: string[];
  locations: Packed['locations'];
  /** For each location, who wrote it: see `owners.ts`. */
  ownerOf: Uint8Array;
  /** For each location, the first one in the same function. */
  functionOf: Int32Array;
  nodes: {
    n: number;
    /** Parents come before their children; the root is its own parent. */
    parent: Int32Array;
    /** A location, or one of the three values above. */
    location: Int32Array;
    /** Number of frames that were cut; 0 unless the location is CUT. */
    nCut: Int32Array;
  };
  origins: Packed['origins'];
  own: { n: number; node: Int32Array; origin: Int32Array; amounts: Record<Measure, Amounts> };
  lives: Lives | undefined;
}

/** Amounts of the entries of `own`, by the bins of time in which blocks were allocated and freed. */
export interface Lives {
  /** Nanoseconds since the start. Bin `n` reaches from edge `n` to edge `n + 1`. */
  edges: number[];
  /** Index in `own`. */
  own: Int32Array;
  birth: Int32Array;
  /** The number of bins, if the blocks were live at the end. */
  death: Int32Array;
  bytes: Float64Array;
  count: Float64Array;
}

/** Reads the data embedded in this document. */
export async function readPageData(): Promise<Data> {
  return unpack(await readEmbedded<Packed>('heaptide flamegraph, table, diff or timeline'));
}

/** The launcher of a notebook's kernel. Its path and arguments mean nothing to the user. */
const KERNEL = /(^|\/)ipykernel(_launcher\.py|\/__main__\.py)(\s|$)/;

/** Returns the title for a program: its command line, or `notebook`. */
export function programTitle(commandLine: string | undefined): string {
  if (!commandLine) return 'a Python program';
  return KERNEL.test(commandLine) ? 'notebook' : commandLine;
}

/** Returns the title of the first process. */
export function programOf({ head }: Pick<Data, 'head'>): string {
  return programTitle(head.processes[0]?.command_line);
}

export function unpack(packed: Packed): Data {
  const { up, place } = packed.nodes;
  const n = up.length;
  const nodes = { n, parent: new Int32Array(n), location: new Int32Array(n), nCut: new Int32Array(n) };
  for (let node = 0; node < n; node++) {
    nodes.parent[node] = node - up[node]!;
    const at = place[node]!;
    nodes.location[node] = at < NO_FRAMES ? CUT : at;
    nodes.nCut[node] = at < NO_FRAMES ? NO_FRAMES - at : 0;
  }
  const { step, origin } = packed.own;
  const columns = (measure: Measure): Amounts => ({
    bytes: Float64Array.from(packed.own[measure].bytes),
    count: Float64Array.from(packed.own[measure].count),
    variance: packed.own[measure].variance && Float64Array.from(packed.own[measure].variance!),
  });
  return {
    head: packed.head,
    timeline: packed.timeline,
    texts: packed.texts,
    locations: packed.locations,
    ownerOf: ownersOfLocations(packed),
    functionOf: functions(packed.locations),
    nodes,
    origins: packed.origins,
    own: {
      n: step.length,
      node: sums(step),
      origin: Int32Array.from(origin),
      amounts: Object.fromEntries(packed.head.measures.map((measure) => [measure, columns(measure)])) as Record<Measure, Amounts>,
    },
    lives: lives(packed.lives),
  };
}

function lives(packed: Packed['lives']): Lives | undefined {
  if (!packed || packed.edges_ns.length < 2) return undefined;
  const birth = Int32Array.from(packed.birth);
  return {
    edges: packed.edges_ns,
    own: sums(packed.step),
    birth,
    death: Int32Array.from(packed.age, (age, at) => birth[at]! + age),
    bytes: Float64Array.from(packed.bytes),
    count: Float64Array.from(packed.count),
  };
}

/** Returns running sums of the steps. */
function sums(steps: number[]): Int32Array {
  let at = 0;
  return Int32Array.from(steps, (step) => (at += step));
}

function functions(locations: Packed['locations']): Int32Array {
  const first = new Map<string, number>();
  return Int32Array.from(locations.function, (name, at) => {
    const key = `${name} ${locations.file[at]}`;
    const known = first.get(key);
    if (known === undefined) first.set(key, at);
    return known ?? at;
  });
}

/** Process, thread and job of a view; −1 for all. */
export interface Filter {
  process: number;
  thread: number;
  /** Index in `Head.jobs`; their number for allocations outside of jobs. */
  job?: number;
  /** In a comparison: only this side. */
  side?: 'before' | 'after';
}

/** The name of a process in lists. Pages with data of an older release have only its ID. */
export function shownName(process: Pick<Process, 'name' | 'shown'> | undefined): string {
  return process?.shown ?? process?.name ?? '';
}

/** The labels of a process as one text: `role=worker, queue=mail`. */
export function labelText(process: Pick<Process, 'labels'>): string {
  const labels = Object.entries(process.labels ?? {});
  return labels.map(([key, value]) => `${key}=${value}`).join(', ');
}

/** Returns for each origin whether it passes a filter. */
export function passing(data: Data, filter: Filter): Uint8Array {
  const nBefore = data.head.diff?.n_before ?? 0;
  const { job } = filter;
  // Outside of jobs is the option after the last job.
  const wantedJob = job === undefined || job < 0 ? undefined : job < (data.head.jobs?.length ?? 0) ? job : -1;
  return Uint8Array.from(data.origins.thread, (thread, origin) => {
    if (wantedJob !== undefined && (data.origins.job?.[origin] ?? -1) !== wantedJob) return 0;
    const process = data.head.threads[thread]?.process ?? 0;
    if (filter.side && nBefore > 0 && (process < nBefore) !== (filter.side === 'before')) return 0;
    const passes = (filter.thread < 0 || filter.thread === thread) && (filter.process < 0 || filter.process === process);
    return passes ? 1 : 0;
  });
}

export function threadName(data: Data, thread: number): string {
  const known = data.head.threads[thread];
  if (!known) return 'unknown thread';
  const name = known.name ?? (known.is_main ? 'MainThread' : known.os_id ? `thread ${known.os_id}` : 'unknown thread');
  const process = data.head.processes[known.process];
  return data.head.processes.length > 1 && process ? `${name} (process ${shownName(process)})` : name;
}
