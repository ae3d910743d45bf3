import type { JSX } from 'preact';
import { useRef } from 'preact/hooks';
import type { ListEventsData, ListEventsResponses } from 'token-data-service-client';
import { ApiError } from 'token-data-service-client';

import { countText, shortHex } from '../format.ts';
import { orNull, useEndless, useLoad } from '../loading.ts';
import type { ListPage } from '../loading.ts';
import { Loading, More, Panel, Table } from './parts.tsx';
import type { TokenRow } from './tokens.tsx';
import { CopyMark, Copyable, Hex, TokenName } from './values.tsx';

type Event = ListEventsResponses[200]['results'][number];
type Page = ListPage<Event> & { readonly isKept: boolean };

const PAGE = 25;

/** The raw events of a block or a transaction. */
export function RawEvents({
  of,
}: {
  readonly of: Pick<NonNullable<ListEventsData['query']>, 'block' | 'txhash'>;
}): JSX.Element {
  const list = useEndless(
    async (api, at, signal): Promise<Page> => {
      const page = at === null ? 1 : Number(at);
      try {
        const { results, count, total_pages } = await api.listEvents({
          query: { ...of, limit: PAGE, page },
          signal,
        });
        return { rows: results, next: page < total_pages ? String(page + 1) : null, count, isKept: true };
      } catch (error) {
        // Unknown blocks and transactions are named by the rest of the screen.
        if (error instanceof ApiError && [404, 409].includes(error.status))
          return { rows: [], next: null, count: 0, isKept: error.status === 404 };
        throw error;
      }
    },
    [of],
  );
  const tokenAt = useTokens(list.data?.rows.map(({ from_address }) => from_address) ?? []);
  return (
    <Panel title="Events">
      <Loading of={list}>
        {(page) => (
          <Table
            caption={'block' in of ? 'Events of the block' : 'Events of the transaction'}
            rows={page.rows}
            keyOf={({ index }) => String(index)}
            look="events"
            isWide
            empty={
              'isKept' in page && page.isKept === false
                ? 'The events of this block are not kept.'
                : 'No events.'
            }
            columns={[
              { title: 'Index', isNumber: true, cell: ({ index }) => countText(index) },
              { title: 'Name', cell: ({ name }) => name ?? <span class="quiet">unknown</span> },
              {
                title: 'Emitter',
                cell: ({ from_address }) => <Emitter address={from_address} token={tokenAt(from_address)} />,
              },
              ...('block' in of
                ? [
                    {
                      title: 'Transaction',
                      cell: ({ transaction_hash }: Event) => <Hex value={transaction_hash} to="tx" />,
                    },
                  ]
                : []),
              { title: 'Keys', cell: ({ keys }) => <Felts of={keys} /> },
              { title: 'Data', cell: ({ data }) => <Felts of={data} /> },
            ]}
          />
        )}
      </Loading>
      <More list={list} />
    </Panel>
  );
}

/** The tokens among these contracts, each read once. */
function useTokens(addresses: readonly string[]): (address: string) => TokenRow | null {
  const { current: found } = useRef(new Map<string, TokenRow | null>());
  const distinct = [...new Set(addresses)];
  useLoad(
    async (api, signal) => {
      const unread = distinct.filter((address) => !found.has(address));
      await Promise.all(
        unread.map(async (address) => {
          found.set(address, await orNull(api.getToken({ path: { address }, signal })));
        }),
      );
    },
    [distinct],
  );
  return (address) => found.get(address) ?? null;
}

/** Linked to the screen of the token where it is one, else to that of the account. */
function Emitter({
  address,
  token,
}: {
  readonly address: string;
  readonly token: TokenRow | null;
}): JSX.Element {
  if (token === null) return <Hex value={address} to="account" />;
  return (
    <span class="hex">
      <TokenName address={address} symbol={token.symbol} />
      <CopyMark text={address} />
    </span>
  );
}

function Felts({ of }: { readonly of: readonly string[] }): JSX.Element {
  if (of.length === 0) return <span class="quiet">–</span>;
  return (
    <ol class="felts">
      {of.map((felt, index) => (
        // A felt may be there twice.
        <li key={`${index}/${felt}`}>
          <Copyable full={felt}>
            <code>{shortHex(felt)}</code>
          </Copyable>
        </li>
      ))}
    </ol>
  );
}
