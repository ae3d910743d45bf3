import type { JSX } from 'preact';
import type { GetVerificationResponses } from 'token-data-service-client';

import { countText } from '../format.ts';
import { useLoad } from '../loading.ts';
import { Command, StateTag } from '../ui/operation.tsx';
import { Figure, Loading, Panel, Table } from '../ui/parts.tsx';
import { useTitle } from '../ui/title.ts';
import { TokenAmount } from '../ui/tokens.tsx';
import { EVENT_CHECKS } from '../ui/event-check.ts';
import { Time } from '../ui/values.tsx';
import { usePolled } from '../use-polled.ts';

type Verification = GetVerificationResponses[200];

/** The service answers the same for so long. */
const POLL_MS = 10_000;

/** How much of the index is verified; the service shows it to anyone. */
export function PublicVerification(): JSX.Element {
  useTitle('Verification');
  const verification = usePolled(
    useLoad(async (api, signal) => await api.getVerification({ signal }), []),
    POLL_MS,
  );
  return (
    <>
      <h1>Verification</h1>
      <Loading of={verification}>
        {(found) => (
          <>
            <Heights of={found.heights} />
            <Commitments of={found.commitments} />
            <Conservation of={found.conservation} />
            <Prices of={found.prices} />
            <Runs of={found} />
          </>
        )}
      </Loading>
    </>
  );
}

function Heights({ of }: { readonly of: Verification['heights'] }): JSX.Element {
  const { first, last, verified, unverifiable, reasons } = of;
  const all = verified + unverifiable;
  const outcomes = Object.entries({ verified, ...reasons });
  return (
    <Panel title="Event commitments">
      {first === null || last === null ? (
        <p class="quiet empty">No block is indexed yet.</p>
      ) : (
        <>
          <p>
            Blocks {countText(first)} to {countText(last)}: the events of{' '}
            <strong data-figure="verified">{countText(verified)}</strong> of {countText(all)} match the
            commitment in their header.
          </p>
          <Bar outcomes={outcomes} all={all} />
          <Table
            caption="Blocks by outcome"
            rows={outcomes}
            keyOf={([outcome]) => outcome}
            columns={[
              {
                title: 'Outcome',
                cell: ([outcome]) => (
                  <>
                    <svg class="share-key" aria-hidden="true">
                      <rect class={outcome} width="100%" height="100%" />
                    </svg>{' '}
                    {EVENT_CHECKS[outcome] ?? outcome}
                  </>
                ),
              },
              { title: 'Blocks', isNumber: true, cell: ([, blocks]) => countText(blocks) },
            ]}
          />
        </>
      )}
    </Panel>
  );
}

function Commitments({ of }: { readonly of: Verification['commitments'] }): JSX.Element {
  return (
    <Panel title="Blocks compared when fetched">
      {of.length === 0 ? (
        <p class="quiet empty">No block was compared yet.</p>
      ) : (
        <Table
          caption="Blocks by commitment and outcome"
          rows={of}
          keyOf={({ commitment, starknet_version: version, outcome }) =>
            `${commitment} ${version} ${outcome}`
          }
          columns={[
            { title: 'Commitment', cell: ({ commitment }) => commitment.replace('_', ' ') },
            { title: 'Starknet', cell: ({ starknet_version: version }) => version },
            { title: 'Outcome', cell: ({ outcome }) => <StateTag state={outcome} /> },
            { title: 'Blocks', isNumber: true, cell: ({ blocks }) => countText(blocks) },
            {
              title: 'Heights',
              cell: ({ from, to }) =>
                from === null || to === null ? '' : `${countText(from)} to ${countText(to)}`,
            },
            { title: 'Last', cell: ({ at }) => <Time at={at} /> },
          ]}
        />
      )}
    </Panel>
  );
}

function Prices({ of }: { readonly of: Verification['prices'] }): JSX.Element {
  const { tokens, refused, to } = of;
  return (
    <Panel title="Prices">
      {to === null ? (
        <p class="quiet empty">No price was read yet.</p>
      ) : (
        <p>
          Of the last readings of {countText(tokens)} tokens,{' '}
          {refused.length === 0
            ? 'none was'
            : refused.map(({ reason, tokens: count }) => `${countText(count)} (${reason})`).join(', ') +
              (refused.reduce((sum, { tokens: count }) => sum + count, 0) === 1 ? ' was' : ' were')}{' '}
          refused. <Time at={to} />
        </p>
      )}
    </Panel>
  );
}

/** Shares of all blocks, side by side. */
function Bar({
  outcomes,
  all,
}: {
  readonly outcomes: readonly (readonly [outcome: string, blocks: number])[];
  readonly all: number;
}): JSX.Element {
  const percent = (blocks: number): number => (all === 0 ? 0 : (100 * blocks) / all);
  let end = 0;
  return (
    <svg class="share" role="img" aria-label="Shares of the outcomes">
      {outcomes.map(([outcome, blocks]) => {
        const start = end;
        end += percent(blocks);
        return (
          <rect key={outcome} class={outcome} x={`${start}%`} width={`${percent(blocks)}%`} height="100%" />
        );
      })}
    </svg>
  );
}

function Conservation({ of }: { readonly of: Verification['conservation'] }): JSX.Element {
  const { tokens, nonzero, at, to } = of;
  return (
    <Panel title="Conservation">
      {at === null || to === null ? (
        <p class="quiet empty">The balance changes were not summed yet.</p>
      ) : (
        <>
          <p>
            The balance changes of{' '}
            {nonzero.length === 0
              ? `each of ${countText(tokens)} tokens`
              : `all but ${countText(nonzero.length)} of ${countText(tokens)} tokens`}{' '}
            sum to zero up to block {countText(to)}. <Time at={at} />
          </p>
          {nonzero.map(({ token_address: token, sum }) => (
            <p key={token} class="bad">
              <TokenAmount amount={sum} token={token} />
            </p>
          ))}
        </>
      )}
    </Panel>
  );
}

function Runs({ of }: { readonly of: Verification }): JSX.Element {
  const { last_verify: verify, last_rebuild: rebuild, quarantined } = of;
  return (
    <>
      <Panel title="Last verification" aside={<Command text="tds verify" />}>
        {verify === null ? (
          <p class="quiet empty">The tables were not compared with the log yet.</p>
        ) : (
          <dl class="figures">
            <Figure name="Ended">
              <Time at={verify.at} />
            </Figure>
            {verify.from !== null && verify.to !== null && (
              <Figure name="Blocks">
                {countText(verify.from)} to {countText(verify.to)}
              </Figure>
            )}
            <Figure name="Differences">{countText(verify.differences)}</Figure>
          </dl>
        )}
      </Panel>
      <Panel title="Last rebuild">
        {rebuild === null ? (
          <p class="quiet empty">Nothing was rebuilt from the log yet.</p>
        ) : (
          <dl class="figures">
            <Figure name="Projection">{rebuild.projection}</Figure>
            <Figure name="Ended">
              <Time at={rebuild.at} />
            </Figure>
            <Figure name="Rows compared">{countText(rebuild.rows)}</Figure>
            <Figure name="Differences">{countText(rebuild.differences)}</Figure>
          </dl>
        )}
      </Panel>
      <Panel title="Quarantine">
        <dl class="figures">
          <Figure name="Events" data-figure="quarantined">
            {countText(quarantined.events)}
          </Figure>
          <Figure name="Contracts">{countText(quarantined.contracts)}</Figure>
        </dl>
      </Panel>
    </>
  );
}
