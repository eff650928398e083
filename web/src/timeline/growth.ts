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
