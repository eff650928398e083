/** One object: its kind, path from a root, referrers, dominator tree and allocation stack. */
import { bytes, percent, plural, whole } from '../model/format.ts';
import { dominatorsOf, expressionOf, type Frame, type HeapData, kindOf, referrersOf, shortPathOf, stackOf, pathTo } from './data.ts';
import { go } from './state.ts';

/** A link to an object, named by its path. `isStep`: its path is known from its surroundings, so its content is shown. */
export function ObjectLink({ data, object, isStep = false }: { data: HeapData; object: number; isStep?: boolean }) {
  const { objects } = data;
  const path = isStep ? '' : shortPathOf(data, object);
  return (
    <button type="button" class="open" title={objects.address[object]} onClick={() => go({ object: objects.address[object]! })}>
      <b>{kindOf(data, object)}</b> {path || objects.name[object] || (isStep ? '' : objects.address[object])}
    </button>
  );
}

export function ObjectView(props: { data: HeapData; object: number; children: Map<number, number[]> }) {
  const { data, object } = props;
  const { objects } = data;
  const kind = kindOf(data, object);
  const retained = objects.retained[object]!;
  const path = pathTo(data, object);
  const referrers = referrersOf(data, object);
  const nHidden = objects.num_referrers[object]! - referrers.length;
  const below = props.children.get(object) ?? [];
  const belowBytes = below.reduce((sum, child) => sum + objects.retained[child]!, 0);
  const nRest = objects.children[object]! - below.length;
  const above = dominatorsOf(data, object);
  const stack = stackOf(data, object);
  return (
    <section class="object" aria-label="Object">
      <h2>
        <button type="button" class="open" onClick={() => go({ tab: 'types', type: kind, object: '' })}>
          {kind}
        </button>{' '}
        <span class="where">{shortPathOf(data, object) || objects.name[object]}</span>
        {objects.is_new[object] === 1 && <span class="mark">new</span>}
      </h2>
      <p class="sum">
        <code>{objects.address[object]}</code> · {objects.name[object] && `${objects.name[object]} · `}
        {whole(objects.bytes[object]!)} bytes own · retains {bytes(retained)} (
        {percent(retained, data.head.bytes)} of the heap)
      </p>
      <h3>Shortest path from a root</h3>
      {objects.is_reachable[object] ? (
        <>
          <ol class="path">
            {path.map((at) => (
              <li key={at}>
                <code>{objects.via[at]}</code>
                {at === object ? <b>{kind}</b> : <ObjectLink data={data} object={at} isStep />}
              </li>
            ))}
          </ol>
          <p class="expression">
            <code>{expressionOf(data, object)}</code>
          </p>
        </>
      ) : (
        <p>No root reaches this object: it is garbage that waits for the collector.</p>
      )}
      <h3>Referred to by {plural(objects.num_referrers[object]!, 'object')}</h3>
      <ul class="links">
        {referrers.map(([from, via]) => (
          <li key={from}>
            <code>{via}</code> of <ObjectLink data={data} object={from} />
          </li>
        ))}
        {nHidden > 0 && <li class="rest">{plural(nHidden, 'more', 'more')}, not in this page</li>}
      </ul>
      <h3>Dominator tree</h3>
      <ul class="links tree">
        {above.map((at, depth) => (
          <li key={at} style={{ paddingLeft: `${depth * 14}px` }}>
            <ObjectLink data={data} object={at} /> <span class="number">{bytes(objects.retained[at]!)}</span>
          </li>
        ))}
        <li style={{ paddingLeft: `${above.length * 14}px` }}>
          <b>
            {kind} {objects.name[object] || objects.address[object]}
          </b>{' '}
          <span class="number">{bytes(retained)}</span>
        </li>
        {below.slice(0, 30).map((at) => (
          <li key={at} style={{ paddingLeft: `${(above.length + 1) * 14}px` }}>
            <ObjectLink data={data} object={at} /> <span class="number">{bytes(objects.retained[at]!)}</span>
          </li>
        ))}
        {nRest > 0 && (
          <li class="rest" style={{ paddingLeft: `${(above.length + 1) * 14}px` }}>
            {plural(nRest, 'more', 'more')}, not in this page{' '}
            <span class="number">{bytes(Math.max(0, retained - objects.bytes[object]! - belowBytes))}</span>
          </li>
        )}
      </ul>
      <h3>Allocated at</h3>
      {stack.length > 0 ? (
        <Stack frames={stack} />
      ) : (
        <p class="rest">
          {data.head.has_stacks
            ? 'Unknown: it was allocated before the recording started.'
            : 'Unknown: take the snapshot while the program is recorded with --objects, and name the recording with --recording.'}
        </p>
      )}
    </section>
  );
}

/** Frames of a stack, innermost first. */
export function Stack({ frames }: { frames: Frame[] }) {
  return (
    <ol class="stack">
      {[...frames].reverse().map((frame, at) => (
        <li key={at}>
          {frame.function} <span>{`${frame.file}:${frame.line}`}</span>
        </li>
      ))}
    </ol>
  );
}
