import type { JSX } from 'preact';
import type { ListOperationsResponses } from 'token-data-service-client';

import { useAction } from '../action.ts';
import { countText } from '../format.ts';
import { useLoad } from '../loading.ts';
import { ErrorNote, Figure, Loading, Panel, Table } from '../ui/parts.tsx';
import { Command, StateTag } from '../ui/operation.tsx';
import { Time } from '../ui/values.tsx';
import { usePolled } from '../use-polled.ts';

type Operation = ListOperationsResponses[200]['results'][number];

const POLL_MS = 2000;

/** What `tds verify` and the sampling of blocks have found. */
export function Verification(): JSX.Element {
  const verification = usePolled(
    useLoad(async (api, signal) => {
      const [found, { results }] = await Promise.all([
        api.getAdminVerification({ signal }),
        api.listOperations({ signal }),
      ]);
      return { ...found, newest: results.find(({ operation }) => operation === 'verify.start') };
    }, []),
    POLL_MS,
  );
  return (
    <Loading of={verification}>
      {({ runs, sampling, inconsistent_blocks: wrong, newest }) => (
        <>
          <Panel title="Sampling">
            {sampling === null ? (
              <p class="quiet empty">No block was compared yet.</p>
            ) : (
              <dl class="figures">
                <Figure name="Blocks compared">{countText(sampling.blocks)}</Figure>
                <Figure name="Differences">{countText(sampling.differences)}</Figure>
                <Figure name="Last block">{countText(sampling.last_height)}</Figure>
                <Figure name="Last compared">
                  <Time at={sampling.last_at} />
                </Figure>
              </dl>
            )}
            {wrong.map(({ height, detail, since }) => (
              <p key={height} class="bad">
                Block {countText(height)}: {detail} <Time at={since} />
              </p>
            ))}
          </Panel>
          <Panel title="Verifications" aside={<Command text="tds verify" />}>
            <Start newest={newest} onStarted={verification.reload} />
            <Table
              caption="Verifications"
              rows={runs}
              keyOf={({ started_at }) => started_at}
              empty="tds verify was not run yet."
              columns={[
                { title: 'Started', cell: ({ started_at }) => <Time at={started_at} /> },
                { title: 'Outcome', cell: ({ outcome }) => <StateTag state={outcome} /> },
                { title: 'Differences', isNumber: true, cell: ({ differences }) => countText(differences) },
                { title: 'Found', isNumber: true, cell: ({ found }) => countText(found) },
                {
                  title: 'Rows repaired',
                  isNumber: true,
                  cell: ({ repaired_rows }) => countText(repaired_rows),
                },
                { title: 'Messages', isNumber: true, cell: ({ messages }) => countText(messages) },
                { title: 'Error', cell: ({ error }) => error ?? '' },
              ]}
            />
          </Panel>
        </>
      )}
    </Loading>
  );
}

/** Starts a verification; of the newest one that was started here, it shows the state and the report. */
function Start({
  newest,
  onStarted,
}: {
  readonly newest: Operation | undefined;
  readonly onStarted: () => void;
}): JSX.Element {
  const start = useAction(async (api, withKey) => {
    await api.startVerification(withKey({}));
    onStarted();
  });
  return (
    <>
      {start.error !== null && <ErrorNote error={start.error} />}
      <p class="actions">
        <button
          type="button"
          title="tds verify"
          disabled={start.isBusy || newest?.state === 'running'}
          onClick={() => void start.run()}
        >
          Verify
        </button>
      </p>
      {newest !== undefined && (
        <p role="status" class="report">
          <StateTag state={newest.state} /> requested <Time at={newest.requested_at} /> {newest.detail}
        </p>
      )}
    </>
  );
}
