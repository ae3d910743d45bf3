import type { JSX } from 'preact';

import { countText } from '../format.ts';
import { transferRate, withFinality } from '../live.ts';
import type { Live } from '../live.ts';
import { useLoad } from '../loading.ts';
import { ErrorNote, Figure, Loading, Panel, Table } from '../ui/parts.tsx';
import { useLive } from '../use-live.ts';
import { useTitle } from '../ui/title.ts';
import { TransferTable } from '../ui/transfers.tsx';
import { CopyMark, Finality, Time } from '../ui/values.tsx';

/** Blocks before the newest with which the stream begins. */
const BLOCKS_BEFORE = 16;
const SHOWN_TRANSFERS = 50;
const SHOWN_BLOCKS = 25;

export function Home(): JSX.Element {
  useTitle('Home');
  const progress = useLoad(async (api, signal) => await api.getProgress({ signal }), []);
  const head = progress.data?.totals.latest_block_overall;
  const live = useLive({}, head === undefined ? null : Math.max(0, head - BLOCKS_BEFORE));
  return (
    <>
      <h1>Token transfers on Starknet</h1>
      <Loading of={progress}>
        {({ network, chunks, totals }) => (
          <>
            <Figures network={network} live={live} indexed={totals} chunks={chunks} />
            {live.error !== null && <ErrorNote error={live.error} />}
            <div class="columns wide-left">
              <Panel title="Newest transfers" aside={<span class="quiet">live</span>}>
                <TransferTable
                  caption="Newest transfers"
                  rows={withFinality(live.transfers.slice(0, SHOWN_TRANSFERS), live.final)}
                />
              </Panel>
              <Panel title="Newest blocks">
                <Blocks blocks={live.blocks} final={live.final} />
              </Panel>
            </div>
          </>
        )}
      </Loading>
    </>
  );
}

interface Indexed {
  readonly transfers: number;
  readonly latest_block_overall: number;
}

function Figures({
  network,
  live,
  indexed,
  chunks,
}: {
  readonly network: string;
  readonly live: Live;
  readonly indexed: Indexed;
  readonly chunks: readonly { readonly name: string; readonly percent: number | null }[];
}): JSX.Element {
  const [newest] = live.blocks;
  const rate = transferRate(live.blocks);
  const open = chunks.filter(({ percent }) => percent !== null && percent < 1);
  return (
    <dl class="figures">
      <Figure name="Network">{network === '' ? 'unknown' : network}</Figure>
      <Figure name="Head" data-figure="head">
        {newest !== undefined ? (
          <Head {...newest} />
        ) : indexed.transfers === 0 ? (
          '–'
        ) : (
          countText(indexed.latest_block_overall)
        )}
      </Figure>
      <Figure name="Accepted on L1">
        {live.final === null ? (
          <span class="quiet" title="No block of those shown is accepted on L1 yet">
            –
          </span>
        ) : (
          <a href={`/block/${live.final}`}>{countText(live.final)}</a>
        )}
      </Figure>
      <Figure name="Transfers a second">{rate === null ? '–' : rate.toFixed(2)}</Figure>
      <Figure name="Transfers indexed" data-figure="transfers">
        <span title="When this screen was opened">{countText(indexed.transfers)}</span>
      </Figure>
      <Figure name="Backfill" data-figure="backfill">
        {open.length === 0
          ? chunks.length === 0
            ? '–'
            : 'complete'
          : open.map(({ name, percent }) => (
              <progress key={name} value={percent ?? 0} max={1} aria-label={name} title={name} />
            ))}
      </Figure>
    </dl>
  );
}

function Head({ height, timestamp }: { readonly height: number; readonly timestamp: string }): JSX.Element {
  return (
    <>
      <a href={`/block/${height}`}>{countText(height)}</a>{' '}
      <small class="quiet">
        <Time at={timestamp} />
      </small>
    </>
  );
}

function Blocks({
  blocks,
  final,
}: {
  readonly blocks: Live['blocks'];
  readonly final: number | null;
}): JSX.Element {
  return (
    <Table
      caption="Newest blocks"
      rows={blocks.slice(0, SHOWN_BLOCKS)}
      keyOf={({ hash }) => hash}
      empty="Waiting for a block…"
      columns={[
        {
          title: 'Block',
          isNumber: true,
          cell: ({ height, hash }) => (
            <span class="hex">
              <a href={`/block/${height}`} title={hash}>
                {countText(height)}
              </a>
              <CopyMark text={hash} />
            </span>
          ),
        },
        { title: 'Time', cell: ({ timestamp }) => <Time at={timestamp} /> },
        { title: 'Transfers', isNumber: true, cell: ({ transfers }) => countText(transfers) },
        {
          title: 'State',
          cell: ({ height, finality }) => (
            <Finality status={final !== null && height <= final ? 'ACCEPTED_ON_L1' : finality} />
          ),
        },
      ]}
    />
  );
}
