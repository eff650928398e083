/** Shows the frame or row of a finding. */
import type { Data, Finding, Measure } from '../model/data.ts';
import { change } from '../state.ts';

/** The measure that shows each type of finding best. */
const MEASURES: Record<string, Measure> = { holds_most: 'peak', grows: 'leaked', churns: 'temporary' };

function measureOf(data: Data, finding: Finding): { measure?: Measure } {
  const measure = MEASURES[finding.kind];
  return measure && data.head.measures.includes(measure) ? { measure } : {};
}

const EVERYTHING = { from: -1, to: -1, process: -1, thread: -1, job: -1 } as const;

/** Zooms to the frame of a finding. */
export function showInGraph(data: Data, finding: Finding): void {
  if (finding.node === null) return;
  const { parent, location } = data.nodes;
  const zoom: number[] = [];
  for (let at = finding.node; at !== 0; at = parent[at]!) zoom.push(location[at]!);
  change({ ...EVERYTHING, ...measureOf(data, finding), inverted: false, splitThreads: false, search: '', zoom: zoom.reverse() });
}

/** Shows only the rows with the location of a finding. */
export function showInTable(data: Data, finding: Finding): void {
  const { place } = finding;
  if (!place) return;
  const literal = (text: string) => text.replace(/[\\^$.*+?()[\]{}|/]/g, '\\$&');
  const exactly = `^${literal(place.function)} ${literal(place.file)}:${place.line}$`;
  change({ ...EVERYTHING, ...measureOf(data, finding), grouping: 'location', search: exactly });
}
