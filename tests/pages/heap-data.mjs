/** The data of a heap page: a shop with a cache that grows. */

export const head = (more) => ({
  format: 1,
  file: 'job.heap',
  command_line: 'job.py --fast',
  pid: 4711,
  host: 'worker-7',
  python: '3.12.1',
  taken: '2026-11-16T02:00:00.000Z',
  paused_ns: 12e6,
  count: 1004,
  bytes: 2_000_000,
  unreachable_count: 0,
  unreachable_bytes: 0,
  has_stacks: true,
  warnings: [],
  suspects: [
    {
      what: '1000 × job.Order accumulate in a dict: 1.5 MB',
      evidence: ["held by  sys.modules['job'].__dict__['cache']"],
      advice: 'bound it',
      bytes: 1_500_000,
      object: 2,
    },
  ],
  tops: [0],
  num_tops: 4,
  ...more,
});

/** A module, its dict, a cache in it, and two of a thousand orders in the cache. */
export const SHOP = {
  head: head({}),
  kinds: [
    { label: 'module', count: 1, bytes: 72, retained: 1_900_000, objects: [0] },
    { label: 'dict of module', count: 1, bytes: 1000, retained: 1_899_928, objects: [1] },
    { label: 'dict', count: 2, bytes: 40_000, retained: 1_500_000, objects: [2] },
    { label: 'job.Order', count: 1000, bytes: 48_000, retained: 1_460_000, objects: [3, 4] },
  ],
  objects: {
    kind: [0, 1, 2, 3, 3],
    address: ['0x10', '0x20', '0x30', '0x40', '0x50'],
    name: ['job', 'job', '1,000 items', '', ''],
    bytes: [72, 1000, 39_000, 48, 48],
    retained: [1_900_000, 1_899_928, 1_500_000, 2000, 1460],
    dominator: [-1, 0, 1, 2, 2],
    children: [1, 3, 1000, 1, 1],
    before: [-1, 0, 1, 2, 2],
    via: ["sys.modules['job']", '.__dict__', "['cache']", "['a']", "['b']"],
    num_referrers: [1, 2, 1, 1, 3],
    referrers: [[], [0, '.__dict__'], [1, "['cache']"], [2, "['a']"], [2, "['b']"]],
    is_new: [0, 0, 0, 1, 0],
    is_reachable: [1, 1, 1, 1, 1],
    stack: [0, 0, 0, 3, 0],
  },
  stacks: [
    {
      number: 3,
      frames: [
        { function: 'main', file: '/srv/job.py', line: 3 },
        { function: 'load', file: '/srv/job.py', line: 17 },
      ],
    },
  ],
};

export const COMPARED = {
  ...SHOP,
  head: head({ before: { count: 500, bytes: 1_000_000, same_process: true, num_new: 600, num_gone: 96 } }),
  kinds: SHOP.kinds.map((kind, at) => ({ ...kind, before_count: 1, before_bytes: at === 3 ? 8_000 : kind.bytes, new: at === 3 ? 600 : 0, gone: 0 })),
};
