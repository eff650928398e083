/** The page of `heaptide record` and `heaptide plot`: memory of processes over time, with calls of functions. */
import { useSignal } from '@preact/signals';
import type { Keys } from './controls/Help.tsx';
import { Shell, showPage } from './controls/Shell.tsx';
import { simpleKey } from './controls/simple-key.ts';
import { type Figure, Figures } from './header/Figures.tsx';
import { Bar, Notes } from './header/Header.tsx';
import { readEmbedded } from './model/embedded.ts';
import { bytes, duration, signed, whole } from './model/format.ts';
import { Calls } from './plot/Calls.tsx';
import { Chart, curveColour, zoomKey } from './plot/Chart.tsx';
import type { PlotData } from './plot/data.ts';
import { isDark, NO_RECORDING, startState } from './state.ts';
import './style.css';
import './plot/plot.css';

const KEYS: Keys = [
  ['+  −', 'zoom in and out'],
  ['←  →', 'move within the zoomed part'],
  ['0', 'show the whole run; so does a double click'],
  ['1  …  9', 'hide or show a curve'],
  ['d', 'switch between light and dark'],
  ['?', 'show this list'],
];

function Page({ data }: { data: PlotData }) {
  const { head, series } = data;
  const hidden = useSignal<ReadonlySet<number>>(new Set());
  const toggle = (at: number) => {
    if (!series[at]) return false;
    const next = new Set(hidden.value);
    if (!next.delete(at)) next.add(at);
    hidden.value = next;
    return true;
  };
  const figures: Figure[] = [];
  if (head.peak) figures.push(['peak', bytes(head.peak[1]), `${whole(head.peak[1])} bytes`], ['time of the peak', duration(head.peak[0] * 1e9), '']);
  figures.push(['duration', duration((head.to - head.from) * 1e9), '']);
  if (head.limit !== null) figures.push(['memory limit', bytes(head.limit), `${whole(head.limit)} bytes`]);
  return (
    <Shell
      className="plot-page"
      onlyKeys={KEYS}
      note="Drag over the chart to zoom."
      onKey={(key, help) => simpleKey(key, help) || zoomKey(key) || toggle(Number(key) - 1)}
    >
      {(help) => (
        <>
          <header class="head">
            <Bar what="memory over time" title={head.title} onHelp={help} />
            <div class="facts">
              <Figures figures={figures} />
              <p class="about">{head.measured}</p>
            </div>
            <Notes warnings={head.notes} remarks={[]} />
          </header>
          <Chart data={data} hidden={hidden.value} />
          <Calls data={data} />
          <Curves data={data} hidden={hidden.value} onToggle={toggle} />
        </>
      )}
    </Shell>
  );
}

/** The list of curves, which is also the legend of the chart. */
function Curves({ data, hidden, onToggle }: { data: PlotData; hidden: ReadonlySet<number>; onToggle: (at: number) => void }) {
  const dark = isDark.value;
  const hasTrend = data.series.some((one) => one.bytes_per_s !== null);
  return (
    <div class="curves" role="region" aria-label="Curves" tabIndex={0}>
      <table>
        <thead>
          <tr>
            <th scope="col">Curve</th>
            <th scope="col">Peak</th>
            <th scope="col">Time of the peak</th>
            {hasTrend && <th scope="col">Trend</th>}
          </tr>
        </thead>
        <tbody>
          {data.series.map((one, at) => (
            <tr key={at}>
              <td>
                <button type="button" aria-pressed={!hidden.has(at)} title={`Hide or show this curve${at < 9 ? ` (${at + 1})` : ''}`} onClick={() => onToggle(at)}>
                  <i style={{ background: hidden.has(at) ? 'transparent' : curveColour(at, dark), borderColor: curveColour(at, dark) }} />
                  {one.name}
                </button>
              </td>
              <td>{one.peak ? bytes(one.peak[1]) : ''}</td>
              <td>{one.peak ? duration(one.peak[0] * 1e9) : ''}</td>
              {hasTrend && <td>{one.bytes_per_s === null ? '' : `${signed(one.bytes_per_s, 'bytes')}/s`}</td>}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

showPage(readEmbedded<PlotData>('heaptide plot'), (data) => {
  startState(NO_RECORDING);
  return { title: `${data.head.title} · memory over time`, page: <Page data={data} /> };
});
