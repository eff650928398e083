/**
 * The edge at the peak. Lifetimes are known at the edges of bins, and a peak may be shorter than a bin. Its blocks are known
 * exactly, though, so an edge at that time can be added.
 */
import type { Data, Lives } from '../model/data.ts';

/** Returns the data with an edge at the peak of all processes together, and the number of that edge. */
export function withPeakEdge(data: Data): { data: Data; peak: number } {
  const { lives, head } = data;
  if (!lives) return { data, peak: -1 };
  const last = lives.edges.length - 1;
  const isKnown = head.peak_ns !== null && head.peak_ns >= lives.edges[0]! && head.peak_ns <= lives.edges[last]!;
  // Each process is at its own peak, or the peak lies outside of the edges.
  if (head.peak_ns === null || !isKnown) return { data, peak: highestEdge(lives) };
  const existing = lives.edges.indexOf(head.peak_ns);
  if (existing > 0) return { data: { ...data, lives: corrected(data, lives, existing) }, peak: existing };
  let bin = 0;
  while (bin < last - 1 && lives.edges[bin + 1]! <= head.peak_ns) bin++;
  return { data: { ...data, lives: corrected(data, divide(lives, bin, head.peak_ns), bin + 1) }, peak: bin + 1 };
}

/** Returns the edge with the largest sum of live bytes. */
function highestEdge(lives: Lives): number {
  // Change of live bytes at each edge.
  const steps = new Float64Array(lives.edges.length + 1);
  lives.bytes.forEach((bytes, at) => {
    steps[lives.birth[at]! + 1]! += bytes;
    steps[lives.death[at]! + 1]! -= bytes;
  });
  let [alive, most, highest] = [0, 0, 1];
  for (let edge = 1; edge < lives.edges.length; edge++) {
    alive += steps[edge]!;
    if (alive > most) [most, highest] = [alive, edge];
  }
  return highest;
}

/** Divides a bin. Whether its blocks lived at the new edge is unknown: the live blocks are those of the closer edge. */
function divide(lives: Lives, bin: number, atNs: number): Lives {
  const isLate = atNs - lives.edges[bin]! > lives.edges[bin + 1]! - atNs;
  const moved = (at: number) => (at > bin || (at === bin && !isLate) ? at + 1 : at);
  return {
    ...lives,
    edges: [...lives.edges.slice(0, bin + 1), atNs, ...lives.edges.slice(bin + 1)],
    birth: lives.birth.map(moved),
    death: lives.death.map(moved),
  };
}

/** Adds lives that are counted only at this edge: the difference to the blocks at the peak. */
function corrected(data: Data, lives: Lives, peak: number): Lives {
  const bytes = Float64Array.from(data.own.amounts.peak.bytes);
  const count = Float64Array.from(data.own.amounts.peak.count);
  lives.own.forEach((entry, at) => {
    if (lives.birth[at]! >= peak || lives.death[at]! < peak) return;
    bytes[entry]! -= lives.bytes[at]!;
    count[entry]! -= lives.count[at]!;
  });
  const changed = Array.from(bytes.keys()).filter((entry) => bytes[entry] !== 0 || count[entry] !== 0);
  return {
    ...lives,
    own: Int32Array.from([...lives.own, ...changed]),
    birth: Int32Array.from([...lives.birth, ...changed.map(() => peak - 1)]),
    death: Int32Array.from([...lives.death, ...changed.map(() => peak)]),
    bytes: Float64Array.from([...lives.bytes, ...changed.map((entry) => bytes[entry]!)]),
    count: Float64Array.from([...lives.count, ...changed.map((entry) => count[entry]!)]),
  };
}
