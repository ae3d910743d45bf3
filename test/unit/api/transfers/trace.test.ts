import { expect, test } from 'vitest';

import { limitReads } from '../../../../api/http/clickhouse.ts';
import type { RequestInfo } from '../../../../api/http/route.ts';
import { transferRoutes } from '../../../../api/transfers/routes.ts';
import type { TransferRouteDeps } from '../../../../api/transfers/routes.ts';
import type { ClickHouse, ReadOptions } from '../../../../infra/clickhouse/client.ts';
import { toFelt } from '../../../../schemas/felt.ts';

const [account, token] = [toFelt(0xa11cen), toFelt(0xc01n)];

const untilAborted = async (options?: ReadOptions): Promise<never> =>
  await new Promise((_resolve, reject) => {
    options?.signal?.addEventListener('abort', () => reject(new Error('The request was aborted.')));
  });

/** A ClickHouse whose reads of a trace are these, and on which everything before them answers. */
function tracingBy(eachPart: ClickHouse['eachPart'], transfersOfToken: number): ClickHouse {
  const unused = async (): Promise<never> => {
    throw new Error('not expected');
  };
  const rows: ClickHouse['rows'] = async (query, _params, options) => {
    const answers: Readonly<Record<string, unknown[]>> = {
      'transfer-counts.totals': [
        { i: 0, total: 3 },
        { i: 1, total: transfersOfToken },
      ],
      'transfers.kind': [{ kind: 'erc20' }],
      'transfer-counts.busy': [],
    };
    const answer = answers[query.name];
    if (answer !== undefined) return answer.map((row) => query.row.parse(row));
    return await untilAborted(options);
  };
  return {
    rows,
    eachPart,
    file: unused,
    command: unused,
    ddl: unused,
    syncReplicas: unused,
    insert: unused,
    insertEncoded: unused,
    ping: unused,
    close: unused,
  };
}

const hanging: ClickHouse['eachPart'] = async (_query, _params, _onRows, options) =>
  await untilAborted(options);

async function traced(eachPart: ClickHouse['eachPart'], transfersOfToken: number, traceBudgetMs: number) {
  const deps: TransferRouteDeps = {
    clickhouseFor: limitReads(tracingBy(eachPart, transfersOfToken)),
    pool: {
      query: async () => ({ rows: [] }),
    } as unknown as TransferRouteDeps['pool'],
    indexedHeight: () => null,
    now: Date.now,
    traceBudgetMs,
  };
  const route = transferRoutes(deps).find(({ path }) => path === '/api/track-transfers/')!;
  const request = {
    query: { account, token },
    signal: new AbortController().signal,
    caller: () => ({ user: 'user 1', name: 'key 1' }),
    place: { isWanted: () => false },
  } as unknown as RequestInfo;
  const name = (text: string): string => text;
  const served = async () => ({ table: name, schema: name, state: null, chainState: null });
  const { answer } = await route.begin({
    params: {},
    request,
    pool: deps.pool,
    identify: { key: async () => ({ key: { id: 1, userId: 1 } }) } as never,
    served,
    asOf: null as never,
    body: async () => ({}),
  });
  return await answer();
}

test.each([
  ['of the whole token', 100],
  ['by accounts', 1_000_000],
])(
  'a trace whose read %s exceeds the budget is answered 503 with a Retry-After of a minute',
  async (_, size) => {
    const startedAt = performance.now();
    await expect(traced(hanging, size, 150)).rejects.toMatchObject({
      status: 503,
      code: 'trace_too_long',
      headers: { 'Retry-After': '60' },
    });
    expect(performance.now() - startedAt).toBeLessThan(5000);
  },
);

const hexOf = (felt: string): string => felt.slice(2).toUpperCase();
/** A transfer of the account to itself, as ClickHouse returns it. */
const toItself = {
  o_from: hexOf(account),
  o_to: hexOf(account),
  o_txhash: hexOf(token),
  o_amount: '1',
  o_fee: '0',
  o_timestamp: 1_700_000_000,
  o_block: 0,
  o_position: 0,
  o_item: 0,
};
const placeOf = (n: number) => ({ block: n >> 10, position: n & 1023, item: 0 });

test('a trace of too many transfers is answered 400 without a Retry-After: it would be as large again', async () => {
  const eachPart: ClickHouse['eachPart'] = async (query, _params, onRows) => {
    const one = query.row.parse(toItself);
    onRows(Array.from({ length: 400_001 }, (_, n) => Object.assign({}, one, placeOf(n))));
  };
  await expect(traced(eachPart, 1_000_000, 60_000)).rejects.toMatchObject({
    status: 400,
    code: 'invalid',
    message: 'The trace holds more than 400,000 transfers.',
    headers: {},
  });
});
