/** The data of a jobs page. */

const row = (title, more) => ({
  ...{ title, name: title, runs: 4, failed: 0, killed: 0, ok: 4, skipped: 0, deferred: 0, retried: 0, running: 0 },
  ...{ retained_per_run: 0, peak_p50: 1_000_000, peak_p95: 2_000_000, peak_max: 3_000_000, peak_of: 'job' },
  ...{ peak_p50_error_bytes_95: 0, peak_p95_error_bytes_95: 0, peak_max_error_bytes_95: 0 },
  ...{ seconds_p50: 0.25, seconds_p95: 0.5, seconds_max: 1, verdict: 'clean', retained_of: 'blocks', retained_runs: 4 },
  ...{ confidence: 0.5, site: null, site_bytes: null, site_of: null, site_runs: null, error: null, suggested_limit_bytes: 64 << 20, processes: 2, hosts: 2 },
  ...{ peaks: { from: 1_000_000, to: 3_000_000, counts: [1, 2, 1] }, durations: { from: 0.1, to: 1, counts: [3, 1] } },
  ...more,
});

/** Two workers on two hosts, three jobs. */
export const JOBS = {
  head: { format: 1, title: 'jobs', runs: 7, processes: 2, hosts: ['web-1', 'web-2'], from: 1_700_000_000, to: 1_700_000_010, min_runs: 8, warnings: [] },
  rows: [
    row('render <pdf>', { verdict: 'leaks', retained_per_run: 300_171, confidence: 0.9995, site: 'render at tasks/pdf.py:41', site_bytes: 1_200_684, site_of: 'retained', site_runs: 3, peak_max: 9_000_000, peak_max_error_bytes_95: 400_000 }),
    row('send mail', { runs: 2, ok: 1, killed: 1, peak_of: 'resident size', verdict: 'unknown', retained_of: 'resident size' }),
    row('sweep', { runs: 1, ok: 0, failed: 1, error: 'ValueError', peak_max: null, peak_p50: null, peak_p95: null, peaks: null, peak_of: null }),
  ],
  captures: [
    { path: '/srv/work.tide', page: 'heaptide-flamegraph-work.html', command: 'heaptide flamegraph --job JOB /srv/work.tide' },
    { path: '/srv/other.tide', page: null, command: 'heaptide flamegraph --job JOB /srv/other.tide' },
  ],
  workers: [
    { name: '1@web-1', host: 'web-1', run: 'nightly', lanes: 2, left_out: 0 },
    { name: '1@web-2', host: 'web-2', run: 'nightly', lanes: 1, left_out: 3 },
  ],
  outcomes: ['ok', 'failed', 'skipped', 'deferred', 'retried', 'killed', 'running'],
  spans: {
    worker: [0, 0, 1, 1],
    lane: [0, 1, 0, 0],
    row: [0, 0, 1, 2],
    from: [0, 1, 2, 6],
    to: [4, 5, 5, 10],
    outcome: [0, 0, 5, 1],
    key: ['order 7', null, null, null],
    peak: [9_000_000, 8_000_000, null, null],
    peak_error: [400_000, 0, 0, 0],
    retained: [300_171, 300_171, null, null],
    capture: [0, 0, 1, -1],
  },
};
