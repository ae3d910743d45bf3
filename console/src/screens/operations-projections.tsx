import type { JSX } from 'preact';
import type { ListProjectionsResponses } from 'token-data-service-client';

import { useAction } from '../action.ts';
import { bytesText, countText } from '../format.ts';
import { useLoad } from '../loading.ts';
import { ErrorNote, Loading, Panel, Table } from '../ui/parts.tsx';
import { Command, StateTag } from '../ui/operation.tsx';
import { Time } from '../ui/values.tsx';
import { usePolled } from '../use-polled.ts';

type Projection = ListProjectionsResponses[200]['results'][number];
type Rebuild = NonNullable<Projection['rebuild']>;

const POLL_MS = 2000;

export function Projections(): JSX.Element {
  const loaded = useLoad(async (api, signal) => await api.listProjections({ signal }), []);
  const list = usePolled(loaded, POLL_MS);
  return (
    <Loading of={list}>
      {({ results }) => (
        <>
          <Rebuilds of={results} onChange={list.reload} />
          <Panel title="Projections" aside={<Command text="tds builds list" />}>
            <Builds of={results} onChange={list.reload} />
          </Panel>
        </>
      )}
    </Loading>
  );
}

interface ListProps {
  readonly of: readonly Projection[];
  readonly onChange: () => void;
}

function Builds({ of, onChange }: ListProps): JSX.Element {
  const start = useAction(async (api, withKey, name: string) => {
    await api.startRebuild(withKey({ path: { name }, body: {} }));
    onChange();
  });
  const ask = (name: string): void => {
    const question = `Rebuild ${name} from the log beside the served tables, compare and swap?\n\ntds rebuild ${name}`;
    if (window.confirm(question)) void start.run(name);
  };
  return (
    <>
      {start.error !== null && <ErrorNote error={start.error} />}
      <Table
        caption="Projections"
        rows={of}
        keyOf={({ name }) => name}
        columns={[
          { title: 'Projection', cell: ({ name }) => name },
          { title: 'State', cell: ({ state }) => <StateTag state={state} /> },
          {
            title: 'Messages behind',
            isNumber: true,
            cell: ({ lag_messages: lag }) => (lag === null ? '–' : countText(lag)),
          },
          { title: 'Store', cell: ({ store }) => store },
          { title: 'Builds', cell: ({ builds }) => builds.map(buildText).join(', ') },
          { title: 'Rows', isNumber: true, cell: ({ builds }) => countText(servedOf(builds)?.rows ?? 0) },
          { title: 'Size', isNumber: true, cell: ({ builds }) => bytesText(servedOf(builds)?.bytes ?? 0) },
          {
            title: 'Actions',
            cell: ({ name, rebuild }) => (
              <button
                type="button"
                title={`tds rebuild ${name}`}
                aria-label={`Rebuild ${name}`}
                disabled={start.isBusy || rebuild?.state === 'running'}
                onClick={() => ask(name)}
              >
                Rebuild
              </button>
            ),
          },
        ]}
      />
    </>
  );
}

type Build = Projection['builds'][number];
const servedOf = (builds: readonly Build[]): Build | undefined =>
  builds.find(({ state }) => state === 'serving');
const buildText = ({ build, version, state }: Build): string => `v${version} b${build} ${state}`;

function Rebuilds({ of, onChange }: ListProps): JSX.Element | null {
  const runs = new Map(
    of.flatMap(({ name, rebuild }) => (rebuild === null ? [] : [[rebuild.id, { name, rebuild }]])),
  );
  if (runs.size === 0) return null;
  return (
    <Panel title="Rebuilds">
      {[...runs.values()].map(({ name, rebuild }) => (
        <Run key={rebuild.id} name={name} of={rebuild} onChange={onChange} />
      ))}
    </Panel>
  );
}

/** Errors first, then rows compared, differences, rate and time left. */
function Run({
  name,
  of,
  onChange,
}: {
  readonly name: string;
  readonly of: Rebuild;
  readonly onChange: () => void;
}): JSX.Element {
  const abort = useAction(async (api, withKey) => {
    await api.abortRebuild(withKey({ path: { name } }));
    onChange();
  });
  const isRunning = of.state === 'running';
  return (
    <section class="run" aria-label={`Rebuild of ${of.projections.join(', ')}`}>
      {of.error !== null && <p class="bad">{of.error}</p>}
      <p>
        <StateTag state={of.state} /> <b>{of.projections.join(', ')}</b> <Time at={of.started_at} />{' '}
        {isRunning ? of.phase : of.is_swapped ? 'swapped' : 'not swapped'}{' '}
        <Command text={`tds rebuild ${of.projections.join(' ')}`} />
      </p>
      <p>
        {countText(of.rows_compared)} rows compared,{' '}
        <span class={of.differences > 0 ? 'bad' : ''}>{countText(of.differences)} differences</span>,{' '}
        {countText(of.messages_read)} of {countText(of.messages_total)} messages
        {of.messages_per_second === null ? '' : `, ${of.messages_per_second.toFixed(0)} a second`}
        {of.seconds_left === null ? '' : `, ${countText(of.seconds_left)} s left`}
      </p>
      {isRunning && (
        <p class="actions">
          <progress
            value={of.messages_read}
            max={Math.max(1, of.messages_total)}
            aria-label={`Messages read of ${name}`}
          />
          <button
            type="button"
            disabled={abort.isBusy || of.is_aborting}
            title={`Like Ctrl-C in tds rebuild ${of.projections.join(' ')}`}
            onClick={() => void abort.run()}
          >
            {of.is_aborting ? 'Aborting…' : 'Abort'}
          </button>
        </p>
      )}
      {of.differing.map(({ table, where, served_rows, rebuilt_rows }) => (
        <p key={`${table}/${where}`} class="bad">
          {table} {where}: {countText(served_rows)} rows served, {countText(rebuilt_rows)} rebuilt
        </p>
      ))}
      {abort.error !== null && <ErrorNote error={abort.error} />}
    </section>
  );
}
