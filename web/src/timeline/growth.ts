/** Memory of each process at the two marks. */
import type { Data } from '../model/data.ts';
import { aliveAt } from '../model/intervals.ts';

export interface ProcessGrowth {
  before: number;
  after: number;
}

export function growthOfProcesses(data: Data, from: number, to: number): ProcessGrowth[] {
  const sums = data.head.processes.map(() => ({ before: 0, after: 0 }));
  if (!data.lives || from < 0) return sums;
  const [before, after] = [from, to].map((edge) => aliveAt(data, data.lives!, edge).bytes);
  for (let entry = 0; entry < data.own.n; entry++) {
    const thread = data.origins.thread[data.own.origin[entry]!]!;
    const sum = sums[data.head.threads[thread]?.process ?? 0];
    if (!sum) continue;
    sum.before += before![entry]!;
    sum.after += after![entry]!;
  }
  return sums;
}

/** Returns the marks from the start to the edge with the largest sum of all processes. */
export function firstMarks({ lives }: Data): { from: number; to: number } {
  if (!lives) return { from: -1, to: -1 };
  // Change of live bytes at each edge.
  const steps = new Float64Array(lives.edges.length + 1);
  lives.bytes.forEach((bytes, at) => {
    steps[lives.birth[at]! + 1]! += bytes;
    steps[lives.death[at]! + 1]! -= bytes;
  });
  let [alive, most, to] = [0, 0, 1];
  for (let edge = 1; edge < lives.edges.length; edge++) {
    alive += steps[edge]!;
    if (alive > most) [most, to] = [alive, edge];
  }
  return { from: 0, to };
}
