/** The page of `heaptide lines --html`: the source of functions with the memory of each line. */
import type { Keys } from './controls/Help.tsx';
import { EditorChoice, EditorLink } from './controls/EditorLink.tsx';
import { Shell, showPage } from './controls/Shell.tsx';
import { simpleKey } from './controls/simple-key.ts';
import { Bar } from './header/Header.tsx';
import { Figures } from './header/Figures.tsx';
import { cellText, figuresOf, type LinesData, type Table, totalOf, totalText } from './lines/data.ts';
import { readEmbedded } from './model/embedded.ts';
import { plural } from './model/format.ts';
import { NO_RECORDING, startState } from './state.ts';
import './style.css';
import './lines/lines.css';

const KEYS: Keys = [
  ['n  N', 'go to the next and the previous function'],
  ['d', 'switch between light and dark'],
  ['?', 'show this list'],
];

function Page({ data }: { data: LinesData }) {
  const { tables, columns } = data;
  const bar = columns[data.bar];
  return (
    <Shell className="lines-page" onlyKeys={KEYS} onKey={(key, help) => simpleKey(key, help) || linesKey(key)}>
      {(help) => (
        <>
          <header class="head">
            <Bar what="lines" title={titleOf(data)} onHelp={help} />
            <div class="facts">
              <Figures figures={figuresOf(data)} />
              <p class="about">
                {bar && `The bar behind a line shows its column “${bar.title}”; a line that freed memory has a green bar.`} <span class="editor">Editor: <EditorChoice /></span>
              </p>
            </div>
          </header>
          {tables.length > 1 && <Contents data={data} />}
          {tables.map((table, at) => (
            <Function key={at} data={data} table={table} number={at} />
          ))}
          {tables.length === 0 && <p class="wait">No lines to show.</p>}
        </>
      )}
    </Shell>
  );
}

function titleOf({ tables }: LinesData): string {
  if (tables.length === 1) return tables[0]!.function;
  const files = new Set(tables.map((table) => table.file));
  return files.size === 1 ? tables[0]!.file.split('/').at(-1)! : plural(tables.length, 'function');
}

/** Links to the functions, with the total of the column that the bars show. */
function Contents({ data }: { data: LinesData }) {
  return (
    <nav class="contents" aria-label="Functions">
      <ul>
        {data.tables.map((table, at) => (
          <li key={at}>
            <a href={`#function-${at}`} onClick={(event) => (event.preventDefault(), show(at))}>
              {table.function}
            </a>{' '}
            {data.columns[data.bar] && cellText(data.columns[data.bar]!, totalOf(data, table, data.bar))}
          </li>
        ))}
      </ul>
    </nav>
  );
}

function Function({ data, table, number }: { data: LinesData; table: Table; number: number }) {
  const { columns, bar } = data;
  const [first] = table.rows;
  const largest = Math.max(1, ...table.rows.slice(table.skipped).map((row) => Math.abs(row.cells[bar] ?? 0)));
  return (
    <section class="function" id={`function-${number}`} aria-label={table.function} tabIndex={-1}>
      <h2>
        {table.function} <small>{table.file}</small> {first && <EditorLink file={table.file} line={first.number} folder="" />}
      </h2>
      <div class="source" role="region" aria-label={`Lines of ${table.function}`} tabIndex={0}>
        <table>
          <thead>
            <tr>
              <th scope="col">Line</th>
              {columns.map((column, at) => (
                <th key={column.title} scope="col" class={at === bar ? 'measured' : undefined}>
                  {column.title}
                </th>
              ))}
              <th scope="col">Code</th>
            </tr>
          </thead>
          <tbody>
            {table.rows.map((row, at) => {
              const value = at < table.skipped ? 0 : (row.cells[bar] ?? 0);
              return (
                <tr key={row.number}>
                  <td>{row.number}</td>
                  {columns.map((column, index) => (
                    <td key={column.title} class={index === bar ? 'measured' : undefined}>
                      {column.is_change && at < table.skipped ? '' : cellText(column, row.cells[index])}
                    </td>
                  ))}
                  <td class="code">
                    {value !== 0 && (
                      <i class={value > 0 ? 'more' : 'less'} style={{ width: `${((Math.abs(value) / largest) * 100).toFixed(1)}%` }} aria-hidden="true" />
                    )}
                    <code>{row.text}</code>
                  </td>
                </tr>
              );
            })}
          </tbody>
          <tfoot>
            <tr>
              <th scope="row">Total</th>
              {columns.map((column, index) => (
                <td key={column.title} class={index === bar ? 'measured' : undefined}>
                  {totalText(data, table, index)}
                </td>
              ))}
              <td />
            </tr>
          </tfoot>
        </table>
      </div>
    </section>
  );
}

/** The function that keys have reached. */
let current = -1;

function show(number: number): void {
  const section = document.getElementById(`function-${number}`);
  if (!section) return;
  current = number;
  section.scrollIntoView({ block: 'start' });
  section.focus({ preventScroll: true });
}

function linesKey(key: string): boolean {
  if (key === 'n') show(current + 1);
  else if (key === 'N') show(Math.max(0, current - 1));
  else return false;
  return true;
}

showPage(readEmbedded<LinesData>('heaptide lines --html'), (data) => {
  startState(NO_RECORDING);
  return { title: `${titleOf(data)} · lines`, page: <Page data={data} /> };
});
