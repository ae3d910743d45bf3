import type { JSX } from 'preact';

import { countText } from '../format.ts';
import { useLoad } from '../loading.ts';
import { Figure, Loading, Panel, Table } from '../ui/parts.tsx';
import { Command, StateTag } from '../ui/operation.tsx';
import { Time } from '../ui/values.tsx';

/** What `tds verify` and the sampling of blocks have found. */
export function Verification(): JSX.Element {
  const verification = useLoad(async (api, signal) => await api.getAdminVerification({ signal }), []);
  return (
    <Loading of={verification}>
      {({ runs, sampling, inconsistent_blocks: wrong }) => (
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
