/** The page of a graph of objects: the picture, which can be moved and zoomed by pointer, wheel and keys. */
import { useLayoutEffect, useRef } from 'preact/hooks';
import { Group } from './controls/Group.tsx';
import type { Keys } from './controls/Help.tsx';
import { Shell, showPage } from './controls/Shell.tsx';
import { simpleKey } from './controls/simple-key.ts';
import { Bar } from './header/Header.tsx';
import { View } from './graph/view.ts';
import { readEmbedded } from './model/embedded.ts';
import { isDark, NO_RECORDING, startState } from './state.ts';
import './style.css';
import './graph/graph.css';

interface GraphData {
  head: { format: number; title: string };
  /** The picture. Its light colours are in attributes, its dark ones in a style element. */
  svg: string;
}

const KEYS: Keys = [
  ['←  →  ↑  ↓', 'move the picture'],
  ['+  −', 'zoom in and out; so does the wheel'],
  ['0', 'show the whole picture; so does a double click'],
  ['d', 'switch between light and dark'],
  ['?', 'show this list'],
];

let view: View | undefined;

function Page({ data }: { data: GraphData }) {
  const box = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    view = new View(box.current!, data.svg);
    return () => view?.stop();
  }, [data]);
  const dark = isDark.value;
  useLayoutEffect(() => view?.colour(dark), [data, dark]);
  return (
    <Shell className="graph-page" onlyKeys={KEYS} onKey={(key, help) => simpleKey(key, help) || (view?.key(key) ?? false)}>
      {(help) => (
        <>
          <header class="head">
            <Bar what="objects" title={data.head.title} onHelp={help} />
            <Group className="group zoom" label="Zoom">
              <button type="button" class="plain" aria-label="Zoom in" title="Zoom in (+)" onClick={() => view?.key('+')}>
                +
              </button>
              <button type="button" class="plain" aria-label="Zoom out" title="Zoom out (−)" onClick={() => view?.key('-')}>
                −
              </button>
              <button type="button" class="plain" title="Show the whole picture (0)" onClick={() => view?.key('0')}>
                Whole
              </button>
            </Group>
          </header>
          <div id="view" ref={box} />
        </>
      )}
    </Shell>
  );
}

showPage(readEmbedded<GraphData>('heaptide heap graph'), (data) => {
  startState(NO_RECORDING);
  return { title: data.head.title, page: <Page data={data} /> };
});
