/** Page data of a small program: two threads, an import, a function on two lines, and cut frames. */
import { type Data, type Packed, unpack } from '../src/model/data.ts';

const TEXTS = ['<module>', 'load', 'parse', '_find_and_load', '/srv/job.py', '/srv/lib.py', '<frozen importlib._bootstrap>', 'job', 'lib'];

export const PACKED: Packed = {
  head: {
    format: 1,
    profiler: '0.1.0',
    start_time: '2026-11-15 20:54:32+00:00',
    start_unix_ms: 0,
    duration_ns: 2e9,
    peak_bytes: 1000,
    peak_ns: 1e9,
    peak_heading: null,
    min_share: 0.001,
    measures: ['peak', 'leaked', 'total', 'temporary'],
    first_view: { measure: 'peak', inverted: false, split_threads: false },
    warnings: [],
    remarks: [],
    filters: [],
    processes: [],
    threads: [
      { process: 0, os_id: 1, name: 'MainThread', is_main: true },
      { process: 0, os_id: 2, name: null, is_main: false },
    ],
  },
  timeline: { bin_ns: 1e9, together: { heap: [], resident: [] }, processes: [] },
  texts: TEXTS,
  locations: {
    function: [0, 1, 1, 2, 3],
    file: [4, 4, 4, 5, 6],
    line: [10, 20, 21, 5, 1],
    module: [7, 7, 7, 8, -1],
    import_system: [0, 0, 0, 0, 1],
    library: [-1, -1, -1, -1, -1],
    source: ['main()', 'a = parse()', 'b = parse()', '', ''],
  },
  owners: { text: [4, 5, 6], owner: [0, 1, 3] },
  // root > <module>:10 > load:20 > parse:5 · load:21 > parse:5 > cut · _find_and_load > parse:5; no frames
  nodes: { up: [0, 1, 1, 1, 3, 1, 1, 6, 1, 9], place: [-1, 0, 1, 3, 2, 3, -2 - 7, 4, 3, -2] },
  origins: { thread: [0, 1], allocator: ['MALLOC', 'MMAP'] },
  own: {
    step: [3, 0, 2, 1, 2, 1],
    origin: [0, 1, 0, 0, 0, 1],
    peak: { bytes: [400, 100, 200, 50, 150, 100], count: [4, 1, 2, 5, 3, 1] },
    leaked: { bytes: [0, 0, 10, 0, 0, 0], count: [0, 0, 1, 0, 0, 0] },
    temporary: { bytes: [0, 0, 40, 0, 0, 0], count: [0, 0, 1, 0, 0, 0] },
    total: { bytes: [800, 200, 400, 100, 300, 200], count: [8, 2, 4, 10, 6, 2] },
  },
};

export function smallData(): Data {
  return unpack(structuredClone(PACKED));
}
