/** Builds pages from the committed templates and synthetic data in the form that `report::json::flame` writes. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { deflateRawSync, inflateRawSync } from 'node:zlib';

const PLACEHOLDER = 'HEAPTIDE-DATA-GOES-HERE';

/** Writes a page from a template (`flamegraph`, `table`) with this data, and returns its path. */
export function pageOf(folder, templateName, data, name = templateName) {
  const template = readFileSync(new URL(`../../web/dist/${templateName}.html`, import.meta.url), 'utf8');
  const packed = deflateRawSync(Buffer.from(JSON.stringify(data))).toString('base64');
  const path = join(folder, `${name}.html`);
  writeFileSync(path, template.replace(PLACEHOLDER, () => packed));
  return path;
}

/** Returns the data in a page. */
export function dataOf(path) {
  const [, text] = /id="data">([^<]*)</.exec(readFileSync(path, 'utf8'));
  return JSON.parse(inflateRawSync(Buffer.from(text, 'base64')).toString());
}

const process = (more) => ({
  file: 'heaptide-job.py.4711.tide',
  name: '4711',
  pid: 4711,
  parent_pid: 1,
  command_line: 'job.py --fast',
  executable: '/usr/bin/python3',
  working_directory: '/srv',
  host: 'worker-7',
  python: '3.12.1',
  python_allocator: 'pymalloc',
  mode: 'exact',
  start_ns: 0,
  end_ns: 2e9,
  peak_ns: 1e9,
  num_allocations: 0,
  total_bytes: 0,
  peak_bytes: 0,
  at_peak_bytes: 0,
  live_bytes: 0,
  resident_peak_bytes: 3_000_000,
  limit_bytes: null,
  own_memory_bytes: 0,
  ended_in_order: true,
  joined_late: false,
  ...more,
});

/**
 * Builds the data of a call tree. `frames` are [parent, function, file, line], where 0 is the root. `own` are
 * [frame, thread, peak, leaked, total], with one allocation for each size other than 0. `lives` are
 * [entry of own, birth, death, bytes] in four bins of half a second each. `allocators` has one name per thread.
 */
export function syntheticData({ frames, own, threads = ['MainThread'], allocators = [], head = {}, first = {}, lives }) {
  const texts = [];
  const known = new Map();
  const text = (value) => {
    if (!known.has(value)) {
      known.set(value, texts.length);
      texts.push(value);
    }
    return known.get(value);
  };
  const locations = { function: [], file: [], line: [], module: [], import_system: [], library: [], source: [] };
  const owners = { text: [], owner: [] };
  const numbers = new Map();
  const nodes = { up: [0], place: [-1] };
  frames.forEach(([parent, name, file, line], at) => {
    const key = `${name}\n${file}\n${line}`;
    if (!numbers.has(key)) {
      numbers.set(key, locations.line.length);
      locations.function.push(text(name));
      locations.file.push(text(file));
      locations.line.push(line);
      locations.module.push(text(file.split('/')[2] ?? 'job'));
      locations.import_system.push(file.startsWith('<frozen importlib') ? 1 : 0);
      locations.library.push(file.endsWith('.c') ? text(file.startsWith('/cpython/') ? '/usr/bin/python3' : '/usr/lib/libtest.so') : -1);
      locations.source.push('');
      const owned = locations.library.at(-1) < 0 ? text(file) : locations.library.at(-1);
      if (!owners.text.includes(owned)) {
        owners.text.push(owned);
        owners.owner.push(ownerOf(file));
      }
    }
    nodes.up.push(at + 1 - parent);
    nodes.place.push(numbers.get(key));
  });
  const entries = [...own].sort((one, other) => one[0] - other[0] || one[1] - other[1]);
  const column = (at) => entries.map((entry) => entry[at] ?? 0);
  const measure = (at) => ({ bytes: column(at), count: column(at).map((bytes) => (bytes ? 1 : 0)) });
  const sum = (values) => values.reduce((all, value) => all + value, 0);
  const totals = { peak_bytes: sum(column(2)), live_bytes: sum(column(3)), total_bytes: sum(column(4)) };
  return {
    head: {
      format: 1,
      profiler: '0.1.0',
      start_time: '2026-11-15 20:54:32+00:00',
      start_unix_ms: 0,
      duration_ns: 2e9,
      peak_bytes: totals.peak_bytes,
      peak_ns: 1e9,
      peak_heading: null,
      min_share: 0,
      measures: ['peak', 'leaked', 'total', 'temporary'],
      first_view: { measure: 'peak', inverted: false, split_threads: false, ...first },
      warnings: [],
      remarks: [],
      processes: [process({ ...totals, num_allocations: entries.length })],
      threads: threads.map((name, at) => ({ process: 0, os_id: 4711 + at, name, is_main: at === 0 })),
      ...head,
    },
    timeline: {
      bin_ns: 1e9,
      together: { heap: [0, totals.peak_bytes, totals.live_bytes], resident: [null, 3e6, 3e6] },
      processes: [{ heap: [0, totals.peak_bytes, totals.live_bytes], resident: [null, 3e6, 3e6] }],
    },
    texts,
    locations,
    owners,
    nodes,
    origins: { thread: threads.map((_, at) => at), allocator: threads.map((_, at) => allocators[at] ?? 'MALLOC') },
    own: {
      step: entries.map(([frame], at) => frame - (at ? entries[at - 1][0] : 0)),
      origin: column(1),
      peak: measure(2),
      leaked: measure(3),
      total: measure(4),
      temporary: measure(5),
    },
    ...(lives && { lives: livesOf(lives, own, entries) }),
  };
}

/** Returns the owner of a file: 0 the user, 1 a package, 2 the standard library, 3 the interpreter, 4 other. */
function ownerOf(file) {
  if (file.startsWith('<frozen importlib') || file.startsWith('/cpython/')) return 3;
  if (file.startsWith('/usr/lib/python3')) return 2;
  if (file.startsWith('/opt/')) return 4;
  return file.startsWith('/srv/lib/') || file.includes('/site-packages/') || file.endsWith('.c') ? 1 : 0;
}

function livesOf(lives, own, entries) {
  const known = lives.map(([entry, ...rest]) => [entries.indexOf(own[entry]), ...rest]).sort((one, other) => one[0] - other[0]);
  return {
    edges_ns: [0, 5e8, 1e9, 15e8, 2e9],
    step: known.map(([entry], at) => entry - (at ? known[at - 1][0] : 0)),
    birth: known.map(([, birth]) => birth),
    age: known.map(([, birth, death]) => death - birth),
    bytes: known.map(([, , , bytes]) => bytes),
    count: known.map(() => 1),
  };
}

/**
 * Builds the data of a comparison. `own` is `[frame, bytes before, bytes after]`, the same in every measure; `variance` is
 * that of each size, in square KiB.
 */
export function syntheticDiff({ frames, own, variance }) {
  const entries = own.flatMap(([frame, before, after]) => [
    [frame, 0, before, before, before],
    [frame, 1, after, after, after],
  ]);
  const data = syntheticData({ frames, own: entries, threads: ['MainThread', 'MainThread'] });
  const [known] = data.head.processes;
  data.head.processes = [known, { ...known, name: '4712', pid: 4712, file: 'heaptide-job.py.4712.tide' }];
  data.head.threads[1].process = 1;
  data.timeline.processes.push({ heap: [0, 5e6, 4e6], resident: [null, null, null] });
  const sum = (at) => own.reduce((all, entry) => all + entry[at], 0);
  const [before_bytes, after_bytes] = [sum(1), sum(2)];
  const error_bytes = variance ? Math.round(1.96 * Math.sqrt(2 * own.length * variance) * 1024) : 0;
  const change_bytes = after_bytes - before_bytes;
  const change = { before_bytes, after_bytes, change_bytes, error_bytes, is_noise: Math.abs(change_bytes) <= error_bytes };
  const side = (file) => ({
    duration_ns: 2e9,
    num_allocations: own.length,
    resident_peak_bytes: null,
    sampled_every_bytes: variance ? 1 << 19 : null,
    processes: [{ file, pid: 4711, command_line: 'job.py --fast' }],
    warnings: [],
  });
  data.head.diff = {
    n_before: 1,
    warnings: [],
    before: side('before.tide'),
    after: side('after.tide'),
    whole: { peak: change, leaked: change, total: change, temporary: change },
  };
  if (variance) for (const measure of data.head.measures) data.own[measure].variance = data.own.step.map(() => variance);
  return data;
}

/**
 * Builds a tree with `nFrames` frames, always the same. Every fourth row branches into three frames of about the same size,
 * so that thousands of frames are wide enough to be visible at once: the worst case for drawing.
 */
export function large(nFrames) {
  let state = 1;
  const random = () => (state = (state * 48271) % 2147483647) / 2147483647;
  const frames = [];
  const own = [];
  let row = [0];
  for (let depth = 1; frames.length < nFrames; depth++) {
    const next = [];
    for (const parent of row) {
      for (let child = 0; child < (depth % 4 === 1 ? 3 : 1) && frames.length < nFrames; child++) {
        const at = frames.length + 1;
        frames.push([parent, `function_${at % 3000}`, `/srv/package_${at % 12}/module_${at % 300}.py`, at % 997]);
        const size = 1000 + Math.floor(random() * 1000);
        own.push([at, 0, size, at % 5 ? 0 : size, size * 2]);
        next.push(at);
      }
    }
    row = next;
  }
  return syntheticData({ frames, own });
}
