/** One example of each page, for tests that apply to all pages. */
import { SHOP } from './heap-data.mjs';
import { JOBS } from './jobs-data.mjs';
import { syntheticData, syntheticDiff } from './synthetic-data.mjs';

const FRAMES = [
  [0, '<module>', '/srv/job/job.py', 10],
  [1, 'load', '/srv/job/job.py', 20],
  [2, 'parse', '/srv/site-packages/lib/parse.py', 5],
  [1, 'decode', '/usr/lib/python3.12/json/decoder.py', 30],
  [1, '_find_and_load', '<frozen importlib._bootstrap>', 1],
];
const OWN = [
  [3, 0, 6_000_000, 2_000_000, 8_000_000],
  [4, 1, 2_000_000, 500_000, 2_000_000],
  [5, 0, 1_000_000, 0, 1_000_000],
];
const LIVES = [
  [0, 0, 4, 2_000_000],
  [0, 1, 3, 6_000_000],
  [1, 1, 4, 2_000_000],
  [2, 0, 1, 1_000_000],
];

/** A call tree with two threads, findings and a warning. */
export function recording() {
  const place = { function: 'parse', file: '/srv/site-packages/lib/parse.py', line: 5 };
  const finding = { kind: 'holds_most', what: 'parse holds most', evidence: ['6.00 MB at the peak'], advice: 'free it sooner', place, caller: null, node: 3 };
  const head = { findings: [finding, { ...finding, kind: 'grows' }], warnings: ['3 events were lost'], remarks: ['a remark'] };
  return syntheticData({ frames: FRAMES, own: OWN, threads: ['MainThread', 'reader'], lives: LIVES, head });
}

export const LINES = {
  head: { format: 1, profiler: '0.1.0' },
  columns: [
    { title: 'Mem usage', unit: 'bytes', total: 'most', is_change: false },
    { title: 'Increment', unit: 'bytes', total: 'sum', is_change: true },
    { title: 'Occurrences', unit: 'count', total: 'sum', is_change: false },
  ],
  bar: 1,
  tables: ['work', 'clean'].map((name) => ({
    file: '/srv/job/job.py',
    function: name,
    skipped: 1,
    rows: [
      { number: 3, text: `def ${name}(rows):`, cells: [20_000_000, 20_000_000, 1] },
      { number: 4, text: "    orders = [parse(row) for row in rows if row['price'] > 0 and row['name'].startswith('<b>')]", cells: [32_800_000, 12_800_000, 1] },
      { number: 5, text: '    # sum up', cells: [null, null, null] },
      { number: 6, text: '    del orders', cells: [21_600_000, -11_200_000, 1] },
    ],
  })),
};

const SECONDS = Array.from({ length: 101 }, (_, at) => at / 10);

export const PLOT = {
  head: { format: 1, title: 'python job.py --fast', measured: 'resident size', from: 0, to: 10, peak: [7, 166_200_000], limit: 200_000_000, notes: [] },
  series: [
    { name: 'job.py', seconds: SECONDS, bytes: SECONDS.map((at) => 20_000_000 + at * (at < 7 ? 20_885_714 : 5_000_000)), peak: [7, 166_200_000], bytes_per_s: 14_000_000, trend: [[0, 2e7], [10, 16e7]] },
    { name: 'child 15351 worker.py', seconds: SECONDS.slice(20, 60), bytes: SECONDS.slice(20, 60).map((at) => 9_000_000 * at), peak: [5.9, 53_100_000], bytes_per_s: null, trend: null },
  ],
  calls: [
    { function: 'load', number: 0, begin: 1, end: 6, level: 0 },
    { function: 'parse', number: 1, begin: 2, end: 4, level: 1 },
  ],
};

const box = (name, x, y) =>
  `<g class="object"><title>${name}</title><rect x="${x}" y="${y}" width="150" height="30" rx="4" fill="#e2e8f0" stroke="#1f2933"/><text x="${x + 8}" y="${y + 19}" fill="#1f2933">${name}</text></g>`;

export const GRAPH = {
  head: { format: 1, title: '2 of 6 objects of type Order' },
  svg: `<svg xmlns="http://www.w3.org/2000/svg" width="400" height="200" viewBox="0 0 400 200" font-family="monospace" font-size="12"><style>.arrow:hover path{stroke-width:3}@media(prefers-color-scheme:dark){.paper{fill:#13181a}.object rect{fill:#26333a;stroke:#e6edee}.object text{fill:#e6edee}}</style><rect class="paper" width="400" height="200" fill="#ffffff"/>${box('dict', 20, 20)}${box('Order', 20, 140)}<g class="arrow s0"><title>dict to Order</title><path class="line" d="M95 50V140" fill="none" stroke="#475569"/></g></svg>`,
};

/** Templates with their data, and fragments that select views with other content. */
export const EXAMPLES = [
  ['flamegraph', recording, ['', '#myCode=true&from=1&to=3', '#inverted=true&search=parse']],
  ['table', recording, ['', '#row=2']],
  ['diff', () => syntheticDiff({ frames: FRAMES, own: OWN.map(([frame, , before, after]) => [frame, before, after]) }), ['', '#view=table']],
  ['timeline', recording, ['', '#view=graph']],
  ['heap', () => SHOP, ['', '#tab=types', '#tab=tree', '#object=0x40', '#tab=types&type=job.Order']],
  ['jobs', () => JOBS, ['', '#jobName=render+%3Cpdf%3E']],
  ['lines', () => LINES, ['']],
  ['plot', () => PLOT, ['']],
  ['graph', () => GRAPH, ['']],
];
