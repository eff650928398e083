/** A call stack as text, in the form of a Python traceback. */
import { CUT, type Data } from './data.ts';
import { functionName, locationName } from './format.ts';

/** `locations`: innermost first, as on the pages; a traceback has the innermost last. */
export function stackText(data: Data, locations: number[]): string {
  const lines = ['Traceback (most recent call last):'];
  for (const location of [...locations].reverse()) {
    if (location < 0) {
      if (location === CUT) lines.push('  …');
      continue;
    }
    const line = data.locations.line[location]!;
    const where = `  File "${locationName(data, location, false)}"${line > 0 ? `, line ${line}` : ''}`;
    lines.push(`${where}, in ${functionName(data, location)}`);
    const source = data.locations.source[location];
    if (source) lines.push(`    ${source.trim()}`);
  }
  return `${lines.join('\n')}\n`;
}
