/** Reads the data embedded in a page: compressed JSON with a format number. */

/** `command` names the command that makes such pages. */
export async function readEmbedded<T extends { head: { format: number } }>(command: string): Promise<T> {
  const text = document.getElementById('data')?.textContent?.trim() ?? '';
  if (!text || text.startsWith('HEAPTIDE')) throw new Error(`this page contains no data; make it with ${command}`);
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate-raw'));
  const data = (await new Response(stream).json()) as T;
  if (data.head.format !== 1) throw new Error(`this page cannot read data of format ${data.head.format}`);
  return data;
}
