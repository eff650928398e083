/** The page of `heaptide diff --html`. */
import { useMemo } from 'preact/hooks';
import { commonKey, MeasureChoice } from './controls/Choice.tsx';
import { Shell, showPage } from './controls/Shell.tsx';
import { DiffControls } from './diff/Controls.tsx';
import { Curves } from './diff/Curves.tsx';
import { DiffTable } from './diff/DiffTable.tsx';
import { DiffHeader } from './diff/Header.tsx';
import { DiffLegend } from './diff/Legend.tsx';
import { changeKey, changeRows, KEYS } from './diff/page.ts';
import { FlameView } from './flame/FlameView.tsx';
import { openSession, type Session } from './flame/session.ts';
import { toggleTheme } from './header/Header.tsx';
import { dataOfPage, programOf } from './model/data.ts';
import { settings, startState } from './state.ts';
import './style.css';
import './table/table.css';

function Page({ session }: { session: Session }) {
  const { data } = session;
  const rows = useMemo(() => changeRows(session), [session]);
  const isGraph = settings.value.view === 'graph';
  return (
    <Shell
      kind="flame-page"
      keys={KEYS}
      note="A click on a row of the table shows its stack in the graph."
      onKey={(key, help) => commonKey(data, key, help, toggleTheme) || changeKey(session, key)}
    >
      {(help) => (
        <>
          <DiffHeader data={data} onHelp={help} />
          <Curves data={data} />
          <DiffControls session={session} rows={isGraph ? [] : rows.value} first={<MeasureChoice data={data} />} />
          {isGraph ? <FlameView session={session} /> : <DiffTable rows={rows.value} />}
          <DiffLegend data={data} />
        </>
      )}
    </Shell>
  );
}

showPage(dataOfPage(), (data) => {
  startState(data);
  return { title: `${programOf(data)} · diff`, page: <Page session={openSession(data)} /> };
});
