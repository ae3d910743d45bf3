import type { ComponentChildren, JSX } from 'preact';
import { useState } from 'preact/hooks';
import type { TokenDataClient } from 'token-data-service-client';

import { useAction } from '../action.ts';
import { amountText, countText, printable, shortHex } from '../format.ts';
import { MAX_OF_OTHERS, MAX_OF_ROOT, counterpartiesOf, graphOf } from '../graph.ts';
import type { Counterparty, GraphEdge } from '../graph.ts';
import { useLoad } from '../loading.ts';
import { navigate } from '../router.ts';
import { transferPage } from '../transfer-page.ts';
import type { TransferRow } from '../transfer-page.ts';
import { Drawing, nameOf } from '../ui/graph.tsx';
import { Choice, ErrorNote, Loading, Panel, Table } from '../ui/parts.tsx';
import { decimalsOf } from '../ui/transfers.tsx';
import { Amount, Hex } from '../ui/values.tsx';

/** Transfers that are read of one account: pages of a hundred. */
const PAGES = 5;
const MAX_READ = 100 * PAGES;
/** Accounts that are expanded at a time. */
const MAX_EXPANDED = 12;

interface Shown {
  readonly symbol: string;
  readonly decimals: number;
}

/** The accounts with which the account exchanged a token, and theirs in turn. */
export function AccountGraph({
  address,
  token: asked,
}: {
  readonly address: string;
  readonly token: string | null;
}): JSX.Element {
  const tokens = useLoad(async (api, signal) => await tokensOf(api, address, signal), [address]);
  const token = asked ?? tokens.data?.[0]?.[0] ?? null;
  const to = (one: string): string => `/account/${address}?view=graph&token=${one}`;
  return (
    <Loading of={tokens}>
      {(found) => {
        if (token === null) return <p class="quiet empty">No transfers.</p>;
        const isListed = found.some(([one]) => one === token);
        return (
          <TokenGraph key={token} address={address} token={token}>
            <Choice
              label="Token"
              value={token}
              options={isListed ? found : [[token, shortHex(token)], ...found]}
              onChange={(one) => navigate(to(one), { replace: true })}
            />
          </TokenGraph>
        );
      }}
    </Loading>
  );
}

/** Tokens of the newest transfers, then the others that are held; with their texts. */
async function tokensOf(
  api: TokenDataClient,
  address: string,
  signal: AbortSignal,
): Promise<(readonly [token: string, text: string])[]> {
  const [{ results }, { data }] = await Promise.all([
    api.listTransfers({ query: { account: address, limit: 100 }, signal }),
    api.getPortfolio({ query: { account_address: address }, signal }),
  ]);
  const moved = results
    .toSorted((a, b) => Number(a.is_fee) - Number(b.is_fee))
    .map(({ token_address, token_symbol }) => [token_address, token_symbol] as const);
  const held = data.holdings.map(({ token_address, symbol }) => [token_address, symbol ?? ''] as const);
  // The first text of a token counts.
  const texts = new Map([...moved, ...held].toReversed());
  const order = new Set([...moved, ...held].map(([token]) => token));
  return [...order].map((token) => [token, printable(texts.get(token) ?? '', 24) || shortHex(token)]);
}

/** The newest transfers of a token that an account took part in. */
async function newestTransfers(
  api: TokenDataClient,
  account: string,
  token: string,
  signal: AbortSignal,
): Promise<{ readonly rows: readonly TransferRow[]; readonly isCut: boolean }> {
  let at: string | null = null;
  const rows: TransferRow[] = [];
  for (let i = 0; i < PAGES; i += 1) {
    const page = await transferPage(api, { account, token, limit: 100 }, at, signal);
    rows.push(...page.rows);
    at = page.next;
    if (at === null) return { rows, isCut: false };
  }
  return { rows, isCut: true };
}

function TokenGraph({
  address,
  token,
  children,
}: {
  readonly address: string;
  readonly token: string;
  /** Beside its title. */
  readonly children: ComponentChildren;
}): JSX.Element {
  const [expanded, setExpanded] = useState<ReadonlyMap<string, readonly Counterparty[]>>(new Map());
  const [chosen, setChosen] = useState(address);
  const root = useLoad(
    async (api, signal) => {
      const { rows, isCut } = await newestTransfers(api, address, token, signal);
      const [first] = rows;
      const shown: Shown = {
        symbol: printable(first?.token_symbol ?? '') || shortHex(token),
        decimals: first === undefined ? 0 : decimalsOf(first),
      };
      return { own: counterpartiesOf(address, rows), isCut, shown };
    },
    [address, token],
  );
  const expand = useAction(async (api, _withKey, account: string) => {
    const { rows } = await newestTransfers(api, account, token, new AbortController().signal);
    setExpanded((known) => new Map([...known, [account, counterpartiesOf(account, rows)]]));
  });
  /** Also those that nothing leads to any more. */
  const without = (account: string): typeof expanded => {
    const rest = [...expanded].filter(([one]) => one !== account);
    const left = graphOf(address, new Map([...rest, [address, root.data?.own ?? []]]));
    const shown = new Set(left.nodes.map((node) => node.address));
    return new Map(rest.filter(([one]) => shown.has(one)));
  };
  const choose = (account: string): void => {
    setChosen(account);
    if (account === address) return;
    if (expanded.has(account)) setExpanded(without(account));
    else if (expanded.size < MAX_EXPANDED && !expand.isBusy) void expand.run(account);
  };
  return (
    <Loading of={root}>
      {({ own, isCut, shown }) => {
        const known = new Map([...expanded, [address, own]]);
        const list = known.get(chosen);
        return (
          <>
            <Panel title={`Counterparties: ${shown.symbol}`} aside={children}>
              <p class="quiet">
                The {MAX_OF_ROOT} largest by amount, without fees
                {isCut ? `, of the newest ${MAX_READ} transfers` : ''}. Wide lines are large amounts; green
                ones are received for the most part, red ones sent. Choose an account to show its{' '}
                {MAX_OF_OTHERS} largest too, and again to hide them.
                {expanded.size >= MAX_EXPANDED && ` ${MAX_EXPANDED} are shown: hide one to show another.`}
              </p>
              {expand.error !== null && <ErrorNote error={expand.error} />}
              <Drawing
                graph={graphOf(address, known)}
                root={address}
                chosen={chosen}
                isExpanded={(account) => known.has(account)}
                isBusy={expand.isBusy}
                textOf={(edge) => edgeText(edge, shown)}
                onChoose={choose}
              />
            </Panel>
            {list !== undefined && (
              <Counterparties of={chosen} rows={list} decimals={shown.decimals} isRoot={chosen === address} />
            )}
          </>
        );
      }}
    </Loading>
  );
}

function edgeText(
  { of, address, transfers, sent, received }: GraphEdge,
  { symbol, decimals }: Shown,
): string {
  const amount = (value: bigint): string => `${amountText(value, decimals)} ${symbol}`;
  const pair = `${shortHex(of)} and ${shortHex(address)}`;
  return `${pair}: ${countText(transfers)} transfers, ${amount(sent)} sent, ${amount(received)} received`;
}

function Counterparties({
  of,
  rows,
  decimals,
  isRoot,
}: {
  readonly of: string;
  readonly rows: readonly Counterparty[];
  readonly decimals: number;
  readonly isRoot: boolean;
}): JSX.Element {
  return (
    <Panel title={`Counterparties of ${nameOf(of)}`} aside={<Hex value={of} to="account" />}>
      <Table
        caption={`Counterparties of ${nameOf(of)}`}
        rows={rows.slice(0, isRoot ? MAX_OF_ROOT : MAX_OF_OTHERS)}
        keyOf={({ address }) => address}
        empty="No transfers but fees."
        isWide
        columns={[
          { title: 'Account', cell: ({ address }) => <Hex value={address} to="account" /> },
          { title: 'Transfers', isNumber: true, cell: ({ transfers }) => countText(transfers) },
          {
            title: 'Sent to it',
            isNumber: true,
            cell: ({ sent }) => <Amount value={sent} decimals={decimals} />,
          },
          {
            title: 'Received from it',
            isNumber: true,
            cell: ({ received }) => <Amount value={received} decimals={decimals} />,
          },
        ]}
      />
    </Panel>
  );
}
