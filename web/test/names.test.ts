/** Tests the names of threads: processes with the same ID stay apart. */
import { expect, test } from 'vitest';
import { threadName } from '../src/model/data.ts';
import { smallData } from './small-data.ts';

test('a thread names its process, with the host where two processes have the same ID', () => {
  const data = smallData();
  const process = (name: string) => ({ name, pid: 1 }) as (typeof data.head.processes)[0];
  data.head.processes = [process('1@web-1'), process('1@web-2')];
  data.head.threads[1]!.process = 1;
  expect(threadName(data, 0)).toBe('MainThread (process 1@web-1)');
  expect(threadName(data, 1)).toBe('thread 2 (process 1@web-2)');
});
