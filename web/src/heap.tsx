/** The page of `heaptide heap explore`. */
import { useMemo } from 'preact/hooks';
import { Choice } from './controls/Choice.tsx';
import type { Keys } from './controls/Help.tsx';
import { SearchField } from './controls/SearchField.tsx';
import { Shell, showPage } from './controls/Shell.tsx';
import { type Figure, Figures } from './header/Figures.tsx';
import { Bar, Notes, toggleTheme } from './header/Header.tsx';
import { childrenOf, find, type HeapData } from './heap/data.ts';
import { Instances, Kinds, sortedKinds } from './heap/Kinds.tsx';
import { ObjectView } from './heap/ObjectView.tsx';
import { back, go, type Tab } from './heap/state.ts';
import { Suspects, Tree } from './heap/Tree.tsx';
import { readEmbedded } from './model/embedded.ts';
import { bytes, duration, signed, whole } from './model/format.ts';
import { NO_RECORDING, settings, startState } from './state.ts';
import './style.css';
import './table/table.css';
import './heap/heap.css';

const TABS: readonly (readonly [Tab, string, string])[] = [
  ['suspects', 'Suspects', 'Possible leaks (1)'],
  ['types', 'Types', 'Types of objects with retained sizes (2)'],
  ['tree', 'Dominators', 'The objects that retain most (3)'],
];

const KEYS: Keys = [
  ['1  2  3', 'suspects, types, dominators'],
  ['Tab  Enter', 'go to the next link, and follow it'],
  ['Backspace', 'go back'],
  ['/', 'search types; Enter opens the first, Escape leaves the field'],
  ['d', 'switch between light and dark'],
  ['?', 'show this list'],
];

function Head({ data, onHelp }: { data: HeapData; onHelp: () => void }) {
  const { head } = data;
  const figures: Figure[] = [
    ['objects', whole(head.count), ''],
    ['in all objects', bytes(head.bytes), `${whole(head.bytes)} bytes`],
  ];
  if (head.unreachable_count > 0) {
    figures.push(['garbage', bytes(head.unreachable_bytes), `${whole(head.unreachable_count)} objects that no root reaches`]);
  }
  if (head.before) {
    figures.push(['change', signed(head.bytes - head.before.bytes, 'bytes'), 'since the earlier snapshot']);
    if (head.before.same_process) {
      figures.push(['new', whole(head.before.num_new), 'objects'], ['gone', whole(head.before.num_gone), 'objects']);
    }
  }
  const facts = [
    `process ${head.pid}${head.title ? ` (${head.title})` : ''}`,
    `Python ${head.python}`,
    head.host && `host ${head.host}`,
    `${head.taken.slice(0, 19)} UTC`,
    head.paused_ns > 0 && `paused for ${duration(head.paused_ns)}`,
  ];
  return (
    <header class="head">
      <Bar what="heap" title={head.command_line || head.file} onHelp={onHelp} />
      <div class="facts">
        <Figures figures={figures} />
        <p class="about">{facts.filter(Boolean).join(' · ')}</p>
      </div>
      <Notes warnings={head.warnings} remarks={[]} />
    </header>
  );
}

function Page({ data }: { data: HeapData }) {
  const children = useMemo(() => childrenOf(data), [data]);
  const { tab, type, object } = settings.value;
  const position = find(data, object);
  const kind = type === '' ? undefined : data.kinds.find((one) => one.label === type);
  const isInside = position >= 0 || (tab === 'types' && kind !== undefined);
  return (
    <Shell className="heap-page" onlyKeys={KEYS} onKey={heapKey}>
      {(help) => (
        <>
          <Head data={data} onHelp={help} />
          <div class="controls">
            <Choice label="View" value={tab} options={TABS} onChange={(wanted) => go({ tab: wanted, type: '', object: '' })} />
            <SearchField
              placeholder="Search types: a regular expression"
              label="Search types by a regular expression"
              also={{ tab: 'types', type: '', object: '' }}
              onEnter={() => openFirst(data)}
            />
          </div>
          {isInside && (
            <nav class="crumbs" aria-label="Location">
              <button type="button" id="back" class="plain" title="Back (Backspace)" onClick={back}>
                ← Back
              </button>
              <span>{position >= 0 ? data.kinds[data.objects.kind[position]!]?.label : type}</span>
            </nav>
          )}
          <div class="below">
            {position >= 0 ? (
              <div class="scroll">
                <ObjectView data={data} object={position} children={children} />
              </div>
            ) : tab === 'tree' ? (
              <div class="scroll">
                <Tree data={data} children={children} />
              </div>
            ) : tab === 'suspects' ? (
              <div class="scroll">
                <Suspects data={data} />
              </div>
            ) : kind ? (
              <div class="scroll">
                <Instances data={data} kind={kind} />
              </div>
            ) : (
              <Kinds data={data} />
            )}
          </div>
        </>
      )}
    </Shell>
  );
}

/** Opens the first kind of the table, for keyboard users. */
function openFirst(data: HeapData): void {
  const first = sortedKinds(data.kinds, settings.value.sort, settings.value.search)[0];
  if (first) {
    go({ tab: 'types', type: first.label, object: '' });
    (document.activeElement as HTMLElement | null)?.blur();
  }
}

function heapKey(key: string, help: () => void): boolean {
  const tab = TABS[Number(key) - 1];
  if (tab) {
    go({ tab: tab[0], type: '', object: '' });
    return true;
  }
  switch (key) {
    case '?':
      help();
      return true;
    case 'd':
      toggleTheme();
      return true;
    case '/':
      document.querySelector<HTMLInputElement>('input[type=search]')?.focus();
      return true;
    case 'Backspace':
    case 'Escape':
      back();
      return true;
    default:
      return false;
  }
}

showPage(readEmbedded<HeapData>('heaptide heap explore'), (data) => {
  // Without suspects the first tab would be empty; a comparison is about what changed.
  const tab = data.head.suspects.length > 0 && !data.head.before ? 'suspects' : 'types';
  startState(NO_RECORDING, { tab, sort: data.head.before ? '-change' : '-total' });
  return { title: `${data.head.command_line || data.head.file} · heap`, page: <Page data={data} /> };
});
