import type { TransferListDeps } from '../../api/transfers/list.ts';
import type { ClickHouse } from '../../infra/clickhouse/client.ts';
import { accountFeed } from '../../projections/account-feed/projector.ts';
import { accountLedger } from '../../projections/account-ledger/projector.ts';
import { withNames } from '../../projections/define.ts';
import type { BlockItem, ClickHouseProjection } from '../../projections/define.ts';
import { indexedBlocks } from '../../projections/indexed-blocks/projector.ts';
import { nftHoldings } from '../../projections/nft-holdings/projector.ts';
import { nftTransfers } from '../../projections/nft-transfers/projector.ts';
import { deferredProjections } from '../../projections/index.ts';
import { transferCounts } from '../../projections/transfer-counts/projector.ts';
import { subjectTotals } from '../../projections/transfer-counts/queries.ts';
import { transfers } from '../../projections/transfers/projector.ts';
import { txIndex } from '../../projections/tx-index/projector.ts';
import type { Transfer } from '../../schemas/decode/index.ts';
import { STRK_TOKEN, toFelt } from '../../schemas/felt.ts';
import type { Felt } from '../../schemas/felt.ts';
import type { Random } from './random.ts';

/** A chain of decoded blocks, written to ClickHouse by the real projectors, without a log or a node. */

export interface WorldBlock {
  readonly height: number;
  /** By default one that belongs to the height. */
  readonly hash?: Felt;
  /** By default the one that belongs to the height below. */
  readonly parent?: Felt;
  readonly timestamp: number;
  readonly chunk: string;
  readonly transfers: readonly Transfer[];
}

export const worldProjections: readonly ClickHouseProjection[] = [
  transfers,
  nftTransfers,
  nftHoldings,
  accountFeed,
  accountLedger,
  txIndex,
  transferCounts,
  ...deferredProjections,
  indexedBlocks,
];

/** Real names of tables by placeholder. */
export type TableNames = Readonly<Record<string, string>>;

/** Tables under their own placeholders. */
export const worldTables = { table: (placeholder: string): string => placeholder };

/** Totals of those tables, read anew each time. */
export const worldTotal =
  (clickhouse: ClickHouse): TransferListDeps['total'] =>
  async (subject) =>
    (await subjectTotals(clickhouse, worldTables, [subject]))[0] ?? 0;

const plainNames: TableNames = Object.fromEntries(
  worldProjections.flatMap(({ ddl }) =>
    [...ddl.matchAll(/\{\{([a-z_]+)\}\}/g)].map(([, name = '']) => [name, name]),
  ),
);

export async function createWorldTables(clickhouse: ClickHouse): Promise<void> {
  for (const { ddl } of worldProjections) {
    for (const statement of withNames(ddl, plainNames).split(/;\s*$/m)) {
      if (statement.replaceAll(/--.*$/gm, '').trim() !== '') await clickhouse.command(statement);
    }
  }
}

/** Writes blocks as one batch: base rows, derived tables, and the rows that mark them as indexed. */
export async function writeBlocks(
  clickhouse: ClickHouse,
  blocks: readonly WorldBlock[],
  version: { seq: number; offset: number; type?: 'block.accepted' | 'block.reverted' },
  names = plainNames,
  projections = worldProjections,
): Promise<void> {
  const items = blocks.map((block, i) => batchItem(block, { ...version, offset: version.offset + i }));
  await writeItems(clickhouse, items, projections, names);
}

/** Writes messages as one batch. */
export async function writeItems(
  clickhouse: ClickHouse,
  items: readonly BlockItem[],
  projections: readonly ClickHouseProjection[],
  names: TableNames,
): Promise<void> {
  for (const projection of projections) {
    for (const [table, { columns }] of Object.entries(projection.tables)) {
      const rows = items.flatMap((item) => projection.project(item)[table] ?? []);
      await clickhouse.insert(names[table] ?? table, columns, rows);
    }
    const touched = items.map(({ message, offset }) => ({
      height: message.block.height,
      chunk: message.chunk,
      offset,
    }));
    for (const { sql, params } of projection.derive?.(touched) ?? []) {
      await clickhouse.command(withNames(sql, names), { params });
    }
  }
}

export const hashAt = (height: number): Felt => toFelt(0xb10c_0000n + BigInt(height));

function batchItem(
  {
    height,
    hash = hashAt(height),
    parent = hashAt(Math.max(0, height - 1)),
    timestamp,
    chunk,
    transfers: moved,
  }: WorldBlock,
  version: { seq: number; offset: number; type?: 'block.accepted' | 'block.reverted' },
): BlockItem {
  return {
    message: {
      type: version.type ?? 'block.accepted',
      v: 1,
      seq: version.seq,
      cause: 'new',
      chunk,
      contracts: {},
      block: {
        height,
        hash,
        parent_hash: parent,
        timestamp,
        sequencer_address: toFelt(1n),
        starknet_version: '0.14.0',
        transaction_count: null,
        event_count: null,
        transactions: [],
      },
    },
    decoded: { transfers: [...moved], malformed: [] },
    partition: 0,
    offset: version.offset,
  };
}

/** A transfer with defaults for the fields a test does not set. */
export function aTransfer(
  fields: Pick<Transfer, 'token' | 'from' | 'to' | 'position' | 'txHash'> & Partial<Transfer>,
): Transfer {
  return {
    kind: 'erc20',
    amount: 1n,
    tokenId: null,
    item: 0,
    txIndex: 0,
    eventInTx: 0,
    isFee: false,
    executionStatus: 'SUCCEEDED',
    fee: 5n,
    feeToken: STRK_TOKEN,
    ...fields,
  };
}

export interface World {
  readonly tokens: readonly Felt[];
  readonly accounts: readonly Felt[];
  /** Felts with two roles: token and account, or account and transaction hash. */
  readonly ambiguous: readonly Felt[];
}

export const randomWorld: World = (() => {
  const tokens = Array.from({ length: 12 }, (_, i) => toFelt(0x70_0000n + BigInt(i)));
  const accounts = [
    toFelt(0n),
    // Spread over all felts.
    ...Array.from({ length: 24 }, (_, i) => toFelt((BigInt(i) << 246n) + 0xacc_0000_0000n)),
  ];
  const both = toFelt(0xb07_0001n);
  const accountAndHash = toFelt(0xb07_0002n);
  return {
    tokens: [...tokens, both],
    accounts: [...accounts, both, accountAndHash],
    ambiguous: [both, accountAndHash],
  };
})();

/** From here on, the second token has transfers of ERC-1155 only. */
const NEWEST_HEIGHTS = 8000;
const EDGES = [0n, 1n, (1n << 128n) - 1n, 1n << 128n, (1n << 256n) - 1n];

/**
 * A block of random transfers: half of the first token, a third touching the second account. The second token is a contract of
 * unknown standard; those after it change their standard from transfer to transfer, which real contracts do not.
 */
export function randomBlock(random: Random, height: number, events: number): WorldBlock {
  const { tokens, accounts, ambiguous } = randomWorld;
  const moved: Transfer[] = [];
  let hash = toFelt(0x7a_0000_0000_0000n + BigInt(height) * 100_000n);
  for (let position = 0; position < events; position += 1) {
    const opens = random.below(3) === 0;
    if (opens) hash = toFelt(BigInt(hash) + 1n);
    // One account's address is also a transaction hash.
    const txHash = height % 50 === 7 && position === 0 ? (ambiguous[1] ?? hash) : hash;
    const isHot = random.below(2) === 0;
    const [firstToken, secondToken, secondAccount] = [
      tokens[0] ?? hash,
      tokens[1] ?? hash,
      accounts[1] ?? hash,
    ];
    const token = isHot ? firstToken : random.pick(tokens);
    const kinds =
      token === secondToken
        ? (['erc1155', height < NEWEST_HEIGHTS ? 'unknown' : 'erc1155'] as const)
        : (['erc20', 'erc721', 'erc1155', 'unknown'] as const);
    const kind = token === firstToken ? 'erc20' : random.pick(kinds);
    const from = random.pick(accounts);
    const to = random.below(3) === 0 ? secondAccount : random.below(10) === 0 ? from : random.pick(accounts);
    const items = kind === 'erc1155' ? 1 + random.below(4) : 1;
    for (let item = 0; item < items; item += 1) {
      moved.push(
        aTransfer({
          token,
          from,
          to,
          position: position * 2,
          item,
          txHash,
          kind,
          amount: kind === 'erc721' ? 1n : random.pick(EDGES),
          tokenId: kind === 'erc721' || kind === 'erc1155' ? random.pick(EDGES) : null,
          isFee: random.below(4) === 0,
          executionStatus: random.below(5) === 0 ? 'REVERTED' : 'SUCCEEDED',
          fee: random.pick(EDGES),
        }),
      );
    }
  }
  return {
    height,
    timestamp: 1_700_000_000 + height * 2,
    chunk: height < 5000 ? 'c0' : 'live',
    transfers: moved,
  };
}
