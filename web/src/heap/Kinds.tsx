/** Table of all types of objects, and the largest objects of one type with the stacks that allocated them. */
import { useMemo } from 'preact/hooks';
import { bytes, percent, plural, signed, whole } from '../model/format.ts';
import { expression } from '../model/search.ts';
import { settings } from '../state.ts';
import { type ColumnOf, SizeCell, VirtualTable } from '../table/VirtualTable.tsx';
import { type HeapData, type Kind, shortPathOf } from './data.ts';
import { Stack } from './ObjectView.tsx';
import { go } from './state.ts';

type Value = (kind: Kind) => number | string;

const VALUES: Record<string, Value> = {
  name: (kind) => kind.label,
  allocations: (kind) => kind.count,
  own: (kind) => kind.bytes,
  total: (kind) => kind.retained,
  change: (kind) => kind.bytes - (kind.before_bytes ?? 0),
  after: (kind) => kind.new ?? 0,
  before: (kind) => kind.gone ?? 0,
};

export function sortedKinds(kinds: Kind[], order: string, search: string): Kind[] {
  const wanted = search === '' ? undefined : expression(search);
  const isDown = order.startsWith('-');
  const value = VALUES[order.replace('-', '')] ?? VALUES.total!;
  const sign = isDown ? -1 : 1;
  return kinds
    .filter((kind) => !wanted || wanted.test(kind.label))
    .sort((a, b) => {
      const [x, y] = [value(a), value(b)];
      const order = typeof x === 'string' ? x.localeCompare(String(y)) : x - (y as number);
      return sign * order || a.label.localeCompare(b.label);
    });
}

function columns(data: HeapData): ColumnOf<Kind>[] {
  const all = data.head.bytes;
  const list: ColumnOf<Kind>[] = [
    {
      id: 'name',
      text: 'Type',
      title: 'The type; the dict of an object by its owner',
      isText: true,
      cell: (kind) => (
        <td class="name" title={kind.label}>
          <button type="button" class="open" onClick={() => go({ type: kind.label, object: '' })}>
            {kind.label}
          </button>
        </td>
      ),
    },
    {
      id: 'allocations',
      text: 'Objects',
      title: 'Number of objects',
      cell: (kind) => <td class="allocations">{whole(kind.count)}</td>,
    },
    {
      id: 'own',
      text: 'Own',
      title: 'Bytes of the objects themselves',
      cell: (kind) => <SizeCell className="own" value={kind.bytes} all={all} />,
    },
    {
      id: 'total',
      text: 'Retained',
      title: 'Memory that would be freed with all objects of the type',
      cell: (kind) => <SizeCell className="total" value={kind.retained} all={all} />,
    },
  ];
  if (!data.head.before) return list;
  list.push({
    id: 'change',
    text: 'Change',
    title: 'Change in bytes since the earlier snapshot',
    cell: (kind) => {
      const change = kind.bytes - (kind.before_bytes ?? 0);
      return (
        <td class={`change ${change > 0 ? 'grown' : change < 0 ? 'shrunk' : 'same'}`}>
          <span class="size">{signed(change, 'bytes')}</span>
        </td>
      );
    },
  });
  if (data.head.before.same_process) {
    list.push(
      { id: 'after', text: 'New', title: 'Objects missing in the earlier snapshot', cell: (kind) => <td class="after">{whole(kind.new ?? 0)}</td> },
      { id: 'before', text: 'Gone', title: 'Objects only in the earlier snapshot', cell: (kind) => <td class="before">{whole(kind.gone ?? 0)}</td> },
    );
  }
  return list;
}

export function Kinds({ data }: { data: HeapData }) {
  const { sort, search } = settings.value;
  const rows = useMemo(() => sortedKinds(data.kinds, sort, search), [data, sort, search]);
  const list = useMemo(() => columns(data), [data]);
  return <VirtualTable rows={rows} columns={list} label="Types of objects" onChoose={(kind) => go({ type: kind.label, object: '' })} />;
}

/** The largest objects of a kind, and the sum of the others. */
export function Instances({ data, kind }: { data: HeapData; kind: Kind }) {
  const { objects } = data;
  const shownBytes = kind.objects.reduce((sum, object) => sum + objects.bytes[object]!, 0);
  const nRest = kind.count - kind.objects.length;
  return (
    <section class="instances" aria-label={`Objects of ${kind.label}`}>
      <p class="sum">
        {plural(kind.count, 'object')}, {bytes(kind.bytes)} own, {bytes(kind.retained)} retained (
        {percent(kind.retained, data.head.bytes)} of the heap)
      </p>
      <table>
        <thead>
          <tr>
            <th scope="col">Object</th>
            <th scope="col">Own</th>
            <th scope="col">Retained</th>
            <th scope="col">Content</th>
          </tr>
        </thead>
        <tbody>
          {kind.objects.map((object) => (
            <tr key={object}>
              <td>
                <button type="button" class="open" title={objects.address[object]} onClick={() => go({ object: objects.address[object]! })}>
                  {shortPathOf(data, object) || objects.address[object]}
                </button>
                {objects.is_new[object] === 1 && <span class="mark">new</span>}
              </td>
              <td class="number">{bytes(objects.bytes[object]!)}</td>
              <td class="number">{bytes(objects.retained[object]!)}</td>
              <td class="via">{objects.is_reachable[object] ? objects.name[object] : 'garbage'}</td>
            </tr>
          ))}
          {nRest > 0 && (
            <tr class="rest">
              <td>{plural(nRest, 'smaller one')}, not in this page</td>
              <td class="number">{bytes(Math.max(0, kind.bytes - shownBytes))}</td>
              <td />
              <td />
            </tr>
          )}
        </tbody>
      </table>
      <Allocations data={data} kind={kind} />
    </section>
  );
}

/** The stacks that allocated the listed objects of a kind, those of most objects first. */
function Allocations({ data, kind }: { data: HeapData; kind: Kind }) {
  const counts = new Map<number, number>();
  for (const object of kind.objects) {
    const stack = data.objects.stack[object]!;
    if (stack !== 0) counts.set(stack, (counts.get(stack) ?? 0) + 1);
  }
  if (counts.size === 0) return null;
  const stacks = [...counts].sort((one, other) => other[1] - one[1]).slice(0, MAX_STACKS);
  return (
    <>
      <h2>Allocated at</h2>
      {stacks.map(([number, count]) => (
        <div key={number}>
          <p class="sum">{`${whole(count)} of the ${whole(kind.objects.length)} listed`}</p>
          <Stack frames={data.stacks.find((stack) => stack.number === number)?.frames ?? []} />
        </div>
      ))}
    </>
  );
}

const MAX_STACKS = 5;
