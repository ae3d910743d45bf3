import { expect, test } from 'vitest';

import { limitReads } from '../../../../api/http/clickhouse.ts';
import type { RequestInfo } from '../../../../api/http/route.ts';
import { transferRoutes } from '../../../../api/transfers/routes.ts';
import type { TransferRouteDeps } from '../../../../api/transfers/routes.ts';
import type { ClickHouse, ReadOptions } from '../../../../infra/clickhouse/client.ts';
import { toFelt } from '../../../../schemas/felt.ts';
import type { Felt } from '../../../../schemas/felt.ts';

const [account, token] = [toFelt(0xa11cen), toFelt(0xc01n)];

const untilAborted = async (options?: ReadOptions): Promise<never> =>
  await new Promise((_resolve, reject) => {
    options?.signal?.addEventListener('abort', () => reject(new Error('The request was aborted.')));
  });

/** A ClickHouse whose reads of a trace are these, and on which everything before them answers. */
function tracingBy(
  eachPart: ClickHouse['eachPart'],
  transfersOfToken: number,
  busy: readonly Felt[],
): ClickHouse {
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
      'transfer-counts.busy': busy.map((one) => ({ account: one.slice(2).toUpperCase() })),
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

async function traced(
  eachPart: ClickHouse['eachPart'],
  transfersOfToken: number,
  traceBudgetMs: number,
  busy: readonly Felt[] = [],
) {
  const deps: TransferRouteDeps = {
    clickhouseFor: limitReads(tracingBy(eachPart, transfersOfToken, busy)),
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

/** A transfer, as ClickHouse returns it: its block, position and item are 0xffffffff minus these. */
const lineOf = (from: Felt, to: Felt, block = 0): string =>
  [from, to, 1, token, 1_700_000_000, 0xffff_ffff - block, 0xffff_ffff, 0xffff_ffff, 0].join('\t');
const placeOf = (n: number) => ({ block: n >> 10, position: n & 1023, item: 0 });

test('a trace of too many transfers is answered 400 without a Retry-After: it would be as large again', async () => {
  const eachPart: ClickHouse['eachPart'] = async (query, _params, onRows) => {
    const one = query.row.parse(lineOf(account, account));
    onRows(Array.from({ length: 400_001 }, (_, n) => Object.assign({}, one, placeOf(n))));
  };
  await expect(traced(eachPart, 1_000_000, 60_000)).rejects.toMatchObject({
    status: 400,
    code: 'invalid',
    message: 'The trace holds more than 400,000 transfers.',
    headers: {},
  });
});

const byAccounts = (reads: number): string[] => Array.from({ length: reads }, () => 'transfers.of-accounts');

test.each([
  [100, 0, ['transfers.of-token']],
  [400_000, 0, byAccounts(1)],
  [400_000, 2000, byAccounts(3)],
  [400_000, 12_000, [...byAccounts(1), 'transfers.of-token']],
  [400_001, 12_000, byAccounts(13)],
])(
  'a trace in a token of %i transfers that reaches %i other accounts reads the whole token once that is cheaper',
  async (transfers, others, expected) => {
    const reads: string[] = [];
    const eachPart: ClickHouse['eachPart'] = async (query, _params, onRows) => {
      reads.push(query.name);
      const lines = Array.from({ length: others + 1 }, (_, n) =>
        lineOf(account, toFelt(0xa11cen + BigInt(n)), n),
      );
      onRows(
        reads.length === 1 || query.name === 'transfers.of-token'
          ? lines.map((line) => query.row.parse(line))
          : [],
      );
    };
    const { body } = await traced(eachPart, transfers, 60_000);
    expect(Array.from(body as Iterable<unknown>)).toHaveLength(others + 1);
    expect(reads).toEqual(expected);
  },
);

test.each([
  [16_000, 'transfers.of-token'],
  [17_000, 'transfers.of-busy-account'],
])('a trace of a busy account in a token of %i transfers reads %s', async (transfers, expected) => {
  const reads: string[] = [];
  const eachPart: ClickHouse['eachPart'] = async (query, _params, onRows) => {
    reads.push(query.name);
    onRows([query.row.parse(lineOf(account, account))]);
  };
  await traced(eachPart, transfers, 60_000, [account]);
  expect(reads).toEqual([expected]);
});
