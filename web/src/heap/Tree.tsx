/** The dominator tree, and the list of suspects. */
import { useSignal } from '@preact/signals';
import { bytes, percent, plural } from '../model/format.ts';
import type { HeapData } from './data.ts';
import { ObjectLink } from './ObjectView.tsx';
import { go } from './state.ts';

export function Tree({ data, children }: { data: HeapData; children: Map<number, number[]> }) {
  const nRest = data.head.num_tops - data.head.tops.length;
  return (
    <section class="dominators" aria-label="Dominator tree">
      <ul class="links tree">
        {data.head.tops.map((top) => (
          <Branch key={top} data={data} object={top} children={children} depth={0} />
        ))}
        {nRest > 0 && <li class="rest">{plural(nRest, 'smaller one')}, not in this page</li>}
      </ul>
    </section>
  );
}

function Branch(props: { data: HeapData; object: number; children: Map<number, number[]>; depth: number }) {
  const { data, object, children, depth } = props;
  const isOpen = useSignal(depth < 1);
  const below = children.get(object) ?? [];
  const nRest = data.objects.children[object]! - below.length;
  const retained = data.objects.retained[object]!;
  const via = data.objects.before[object] === data.objects.dominator[object] ? data.objects.via[object] : '';
  return (
    <li>
      <button
        type="button"
        class="fold"
        aria-expanded={isOpen.value}
        aria-label={isOpen.value ? 'Close' : 'Open'}
        disabled={below.length === 0}
        onClick={() => (isOpen.value = !isOpen.value)}
      >
        {below.length === 0 ? '·' : isOpen.value ? '▾' : '▸'}
      </button>
      {via && <code>{via}</code>} <ObjectLink data={data} object={object} isStep={via !== '' && depth > 0} /> <span class="number">{bytes(retained)}</span>{' '}
      <span class="share">{percent(retained, data.head.bytes)}</span>
      {isOpen.value && below.length > 0 && (
        <ul>
          {below.slice(0, 30).map((child) => (
            <Branch key={child} data={data} object={child} children={children} depth={depth + 1} />
          ))}
          {nRest > 0 && <li class="rest">{plural(nRest, 'more', 'more')}, not in this page</li>}
        </ul>
      )}
    </li>
  );
}

export function Suspects({ data }: { data: HeapData }) {
  const { suspects } = data.head;
  if (suspects.length === 0) return <p class="nothing">No suspects: no object retains much memory.</p>;
  return (
    <ol class="suspects">
      {suspects.map((suspect) => (
        <li key={suspect.what}>
          <h2>{suspect.what}</h2>
          <pre>{suspect.evidence.join('\n')}</pre>
          <p>{suspect.advice}</p>
          {suspect.object !== null && (
            <button type="button" class="plain" onClick={() => go({ object: data.objects.address[suspect.object!]! })}>
              Show it
            </button>
          )}
        </li>
      ))}
    </ol>
  );
}
