/** The data of the jobs page, as `report::json::jobs` writes it, and the formats of its numbers. */
import { bytes, duration, percent, whole } from '../model/format.ts';

export interface Histogram {
  from: number;
  to: number;
  counts: number[];
}

export type Verdict = 'leaks' | 'warms up' | 'clean' | 'unknown';

export interface Row {
  /** The name, and with a grouping the worker or host. */
  title: string;
  name: string;
  runs: number;
  failed: number;
  killed: number;
  ok: number;
  skipped: number;
  deferred: number;
  retried: number;
  running: number;
  retained_per_run: number | null;
  peak_p50: number | null;
  peak_p95: number | null;
  peak_max: number | null;
  peak_of: string | null;
  /** The errors (95%) of the three peaks: 0 for exact ones, `null` for resident sizes. */
  peak_p50_error_bytes_95: number | null;
  peak_p95_error_bytes_95: number | null;
  peak_max_error_bytes_95: number | null;
  seconds_p50: number | null;
  seconds_p95: number | null;
  seconds_max: number | null;
  verdict: Verdict;
  retained_of: string | null;
  retained_runs: number;
  growth_is_shared: boolean;
  confidence: number | null;
  site: string | null;
  site_bytes: number | null;
  /** The runs whose own blocks were measured. */
  site_runs: number | null;
  site_of: 'retained' | 'peak' | null;
  error: string | null;
  suggested_limit_bytes: number | null;
  processes: number;
  hosts: number;
  peaks: Histogram | null;
  durations: Histogram | null;
}

/** A capture that recorded runs: its flame graph page, if there is one, or the command that makes it. */
export interface Capture {
  path: string;
  page: string | null;
  command: string;
}

export interface Worker {
  name: string;
  host: string;
  run: string;
  lanes: number;
  left_out: number;
}

export interface JobsData {
  head: {
    format: number;
    title: string;
    runs: number;
    processes: number;
    hosts: string[];
    /** Seconds since 1970. */
    from: number;
    to: number;
    min_runs: number;
    warnings: string[];
  };
  rows: Row[];
  captures: Capture[];
  workers: Worker[];
  outcomes: string[];
  /** One entry per run; times in seconds after `head.from`. */
  spans: {
    worker: number[];
    lane: number[];
    row: number[];
    from: number[];
    to: number[];
    outcome: number[];
    key: (string | null)[];
    peak: (number | null)[];
    peak_error: number[];
    retained: (number | null)[];
    /** −1 if the run was not recorded. */
    capture: number[];
  };
}

/** Formats a size with its error (95%), if it is an estimate. */
export function estimate(value: number, error: number | null): string {
  return error === null || error < 1 ? bytes(value) : `${bytes(value)} ± ${bytes(error)}`;
}

export function time(seconds: number): string {
  return duration(seconds * 1e9);
}

/** Formats a memory limit in the unit that container platforms use. */
export function limit(value: number): string {
  return `${whole(value / 2 ** 20)} MiB`;
}

/** Formats a confidence from 0 to 1, but never as 100%, because nothing is certain. */
export function confidence(value: number): string {
  return value >= 0.9995 ? '>99.9%' : percent(value, 1);
}
