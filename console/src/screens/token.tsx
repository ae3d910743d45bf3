import type { JSX } from 'preact';
import { useEffect } from 'preact/hooks';

import { countText, printable, shortHex } from '../format.ts';
import { isSame, newerThan, streamStart, withFinality } from '../live.ts';
import type { Live } from '../live.ts';
import { client, useEndless, useLoad } from '../loading.ts';
import type { ListPage } from '../loading.ts';
import { useTransfers } from '../transfer-page.ts';
import { ErrorNote, Figure, Loading, More, Panel } from '../ui/parts.tsx';
import { useLive } from '../use-live.ts';
import { useTitle } from '../ui/title.ts';
import { Flags, standardOf } from '../ui/tokens.tsx';
import type { TokenRow } from '../ui/tokens.tsx';
import { CsvButton, TransferTable } from '../ui/transfers.tsx';
import { CopyMark, Count, Logo, Time, Usd } from '../ui/values.tsx';
import { Charts } from './token-charts.tsx';
import { Holders, holderPage } from './token-holders.tsx';

type TransferCount = Pick<ListPage<unknown>, 'count' | 'isEstimate'>;

export function Token({ address }: { readonly address: string }): JSX.Element {
  const token = useLoad(async (api, signal) => await api.getToken({ path: { address }, signal }), [address]);
  const symbol = printable(token.data?.symbol ?? '');
  useTitle(`Token ${symbol === '' ? shortHex(address) : symbol}`);
  const list = useTransfers({ token: address });
  const { data: head } = useLoad(async (api, signal) => await api.getProgress({ signal }), []);
  const holders = useEndless(
    async (api, at, signal) => await holderPage(api, address, at, signal),
    [address],
  );
  const newest = list.data?.rows[0];
  // The list may have been read before its newest block was complete.
  const start =
    newest === undefined || head === undefined
      ? undefined
      : streamStart(newest.block, head.totals.latest_block_overall);
  const from = list.data?.rows.length === 0 ? 'new' : (start ?? null);
  const live = useLive({ token: address }, from, from === null ? null : (newest ?? list.data));
  const { newer, isOutdated } = newerThan(live, newest, start);
  const { reload } = list;
  useEffect(() => {
    if (isOutdated) reload();
    // A deeper reorg may have outdated what is being reloaded.
  }, [isOutdated, live.lastValid]);
  useEffect(() => {
    if (!live.isSilent || newest === undefined) return;
    const ended = new AbortController();
    client()
      .listTransfers({ query: { token: address, limit: 1 }, signal: ended.signal })
      .then(({ results: [first] }) => (first !== undefined && isSame(first, newest)) || reload())
      .catch(() => {}); // the next block shows it
    return () => ended.abort();
  }, [live.isSilent]);
  const rows = withFinality([...newer, ...(list.data?.rows ?? [])], live.final);
  const total = useTotal(address, newest?.block ?? null, live);
  const listed = list.data && { ...list.data, count: list.data.count + newer.length };
  return (
    <>
      <h1>
        <Logo url={token.data?.logo ?? null} address={address} symbol={symbol} /> Token <bdi>{symbol}</bdi>{' '}
        <span class="address">{address}</span> <CopyMark text={address} />
      </h1>
      <Loading of={token}>
        {(one) => (
          <>
            <Facts token={one} count={total ?? listed} holders={holders.data?.count} />
            <Charts token={one} />
            <Holders list={holders} token={one} />
          </>
        )}
      </Loading>
      <Panel
        title="Newest transfers"
        aside={<CsvButton name={`transfers-${shortHex(address).replace('…', '-')}`} rows={rows} />}
      >
        {live.error !== null && <ErrorNote error={live.error} />}
        <Loading of={list}>
          {() => <TransferTable caption="Newest transfers of the token" rows={rows} without={['token']} />}
        </Loading>
        <More list={list} />
      </Panel>
    </>
  );
}

/**
 * The number of a token's transfers. A list that is read while its newest block is being indexed may not count that block, so
 * they are counted as of the block once the stream has sent it; null until then.
 */
function useTotal(token: string, newest: number | null, { blocks, transfers }: Live): TransferCount | null {
  const at = blocks.some(({ height }) => height >= (newest ?? Infinity)) ? newest : null;
  const counted = useLoad(
    async (api, signal) =>
      at === null ? null : await api.listTransfers({ query: { token, limit: 1, as_of_block: at }, signal }),
    [token, at],
  );
  if (counted.data === undefined || counted.data === null) return null;
  const { count, count_is_estimate: isEstimate } = counted.data;
  return { count: count + transfers.filter(({ block }) => block > (at ?? Infinity)).length, isEstimate };
}

function Facts({
  token,
  count,
  holders,
}: {
  readonly token: TokenRow;
  readonly count: TransferCount | undefined;
  readonly holders: number | undefined;
}): JSX.Element {
  return (
    <dl class="figures">
      <Figure name="Name">
        <bdi>{printable(token.name) || '–'}</bdi>
      </Figure>
      <Figure name="Price" data-figure="price">
        <Usd value={token.current_price_usd} />
        {token.price_updated_at !== null && (
          <small class="quiet">
            {' '}
            <Time at={token.price_updated_at} />
          </small>
        )}
      </Figure>
      <Figure name="Transfers" data-figure="transfers">
        {count === undefined ? '…' : <Count value={count.count} isEstimate={count.isEstimate} />}
      </Figure>
      <Figure name="Holders" data-figure="holders">
        {holders === undefined ? '…' : countText(holders)}
      </Figure>
      <Figure name="Standard">{standardOf(token)}</Figure>
      <Figure name="Decimals">{countText(token.decimals)}</Figure>
      <Figure name="Flags">
        {token.verified || token.common || token.public || token.hidden ? <Flags token={token} /> : 'none'}
      </Figure>
    </dl>
  );
}
