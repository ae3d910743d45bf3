import type { JSX } from 'preact';
import type { GetPipelineResponses } from 'token-data-service-client';

import { countText } from '../format.ts';
import { useLoad } from '../loading.ts';
import { PIPELINE_POLL_MS } from '../pipeline-poll.ts';
import { usePlace } from '../router.ts';
import { Figure, Loading, Panel, Table, Views } from '../ui/parts.tsx';
import { useTitle } from '../ui/title.ts';
import { StateTag } from '../ui/operation.tsx';
import { Time } from '../ui/values.tsx';
import { usePolled } from '../use-polled.ts';
import { History } from './operations-history.tsx';
import { Projections } from './operations-projections.tsx';
import { Quarantine } from './operations-quarantine.tsx';
import { Stages } from './operations-stages.tsx';
import { Verification } from './operations-verification.tsx';

type Pipeline = GetPipelineResponses[200];

const POLL_MS = 2000;
const views = [
  ['/operations', 'pipeline', 'Pipeline'],
  ['/operations?view=projections', 'projections', 'Projections'],
  ['/operations?view=quarantine', 'quarantine', 'Quarantine'],
  ['/operations?view=verification', 'verification', 'Verification'],
] as const;

/** For admins; the service refuses others. */
export function Operations(): JSX.Element {
  useTitle('Operations');
  const view = usePlace().query.get('view') ?? 'pipeline';
  return (
    <>
      <h1>Operations</h1>
      <Views label="Views of operations" current={view} views={views} />
      {view === 'pipeline' && <PipelineView />}
      {view === 'projections' && <Projections />}
      {view === 'quarantine' && <Quarantine />}
      {view === 'verification' && <Verification />}
    </>
  );
}

function PipelineView(): JSX.Element {
  const pipeline = usePolled(
    useLoad(async (api, signal) => await api.getPipeline({ signal }), []),
    PIPELINE_POLL_MS,
  );
  return (
    <Loading of={pipeline}>
      {(data) => (
        <>
          <Figures of={data} />
          <Alarms of={data.alarms} />
          <Stages of={data.stages} />
          <History />
          <Chunks />
          <Roles of={data.roles} />
        </>
      )}
    </Loading>
  );
}

function Figures({ of }: { readonly of: Pipeline }): JSX.Element {
  const node = of.stages.find(({ kind }) => kind === 'node');
  const api = of.stages.find(({ kind }) => kind === 'api');
  return (
    <dl class="figures">
      <Figure name="Head of the node">{heightText(node?.height)}</Figure>
      <Figure name="Served by the API" data-figure="indexed">
        {heightText(api?.height)}
      </Figure>
      <Figure name="Lag">{lagText(api?.lag_seconds)}</Figure>
      <Figure name="Accepted on L1">{heightText(of.l1_height)}</Figure>
      <Figure name="Transfers a second">{of.throughput?.transfers_per_second.toFixed(2) ?? '–'}</Figure>
      <Figure name="Quarantined">
        <a href="/operations?view=quarantine">{countText(of.quarantined)}</a>
      </Figure>
      <Figure name="Repairs pending">{countText(of.repairs.pending)}</Figure>
      <Figure name="Updated">
        <Time at={of.updated_at} />
      </Figure>
    </dl>
  );
}

const heightText = (height: number | null | undefined): string =>
  height === null || height === undefined ? '–' : countText(height);
const lagText = (seconds: number | null | undefined): string =>
  seconds === null || seconds === undefined ? '–' : `${seconds.toFixed(1)} s`;

function Alarms({ of }: { readonly of: Pipeline['alarms'] }): JSX.Element {
  return (
    <Panel
      title="Alarms"
      aside={
        <span class={of.length === 0 ? 'tag good' : 'tag bad'} data-figure="alarms">
          {of.length === 0 ? 'none' : countText(of.length)}
        </span>
      }
    >
      {of.map(({ kind, name, detail, since, meaning, action }) => (
        <div key={`${kind}/${name}/${detail}`} class="error" role="alert">
          <p>
            <b>{name}</b> {since !== null && <Time at={since} />}
          </p>
          <p>{detail}</p>
          <p>{meaning}</p>
          <p>
            <b>What to do:</b> {action}
          </p>
        </div>
      ))}
    </Panel>
  );
}

function Roles({ of }: { readonly of: Pipeline['roles'] }): JSX.Element {
  return (
    <Panel title="Roles">
      <Table
        caption="Roles and their processes"
        rows={of}
        keyOf={({ name }) => name}
        columns={[
          { title: 'Role', cell: ({ name }) => name },
          { title: 'State', cell: ({ state }) => <StateTag state={state} /> },
          { title: 'Since', cell: ({ since }) => (since === null ? '–' : <Time at={since} />) },
          { title: 'Detail', cell: ({ detail }) => detail ?? '' },
          {
            title: 'Processes',
            cell: ({ processes }) =>
              processes.map(({ process, state, started_at }) => (
                <span key={process} class="process" title={`Started ${started_at}`}>
                  <StateTag state={state} /> <code>{process}</code>{' '}
                </span>
              )),
          },
        ]}
      />
    </Panel>
  );
}

function Chunks(): JSX.Element {
  const chunks = usePolled(
    useLoad(async (api, signal) => await api.getChunkMap({ signal }), []),
    POLL_MS,
  );
  return (
    <Panel title="Indexed heights">
      <Loading of={chunks}>
        {({ head_height: head, indexed, chunks: rows }) => (
          <>
            <ChunkMap head={head ?? 0} indexed={indexed} />
            <Table
              caption="Chunks"
              rows={rows.filter(({ status, range }) => status === 'open' || range[1] === null)}
              keyOf={({ name }) => name}
              empty="No chunk is open."
              columns={[
                { title: 'Chunk', cell: ({ name }) => <code>{name}</code> },
                {
                  title: 'Heights',
                  isNumber: true,
                  cell: ({ range: [first, last] }) =>
                    `${countText(first)} to ${last === null ? 'head' : countText(last)}`,
                },
                { title: 'Next height', isNumber: true, cell: ({ cursor }) => countText(cursor) },
                { title: 'Blocks', isNumber: true, cell: ({ blocks_indexed }) => countText(blocks_indexed) },
                {
                  title: 'Transfers',
                  isNumber: true,
                  cell: ({ transfers_indexed }) => countText(transfers_indexed),
                },
                { title: 'Writer', cell: ({ writer }) => <code>{writer ?? 'none'}</code> },
                { title: 'Updated', cell: ({ updated_at }) => <Time at={updated_at} /> },
              ]}
            />
          </>
        )}
      </Loading>
    </Panel>
  );
}

interface Range {
  readonly first: number;
  readonly last: number;
  readonly blocks: number;
}

/** Indexed heights as a bar from block 0 to the head. */
function ChunkMap({
  head,
  indexed,
}: {
  readonly head: number;
  readonly indexed: readonly Range[];
}): JSX.Element {
  const blocks = indexed.reduce((sum, range) => sum + range.blocks, 0);
  const text = `${countText(blocks)} of ${countText(head + 1)} heights are indexed`;
  return (
    <>
      <svg
        class="chunks"
        viewBox={`0 0 ${head + 1} 1`}
        preserveAspectRatio="none"
        role="img"
        aria-label={text}
      >
        {indexed.map(({ first, last, blocks: own }) => (
          <rect
            key={first}
            x={first}
            y={0}
            width={last - first + 1}
            height={1}
            opacity={own / (last - first + 1)}
          />
        ))}
      </svg>
      <p class="quiet">{text}</p>
    </>
  );
}
