import type { Felt } from '../../schemas/felt.ts';
import { rangeOf } from '../../schemas/topics.ts';
import { areNewInOpenRange, rowVersion, touchedRanges, versionColumns } from '../chain-rows.ts';
import { descending } from '../descending.ts';
import { tableSql } from '../define.ts';
import type { BlockProjection } from '../define.ts';
import { chainBlocks } from '../streams.ts';

const RECOMPUTE = `
INSERT INTO {{account_ledger_ranges}} (account, token, range, delta, legs, seq, is_deleted)
SELECT account, token, {range:UInt32}, sum(moved.1), sum(moved.2) AS total, {offset:UInt64}, total = 0`;
const TOUCHED = 'range = {range:UInt32} AND block BETWEEN {first:UInt32} AND {last:UInt32}';

/**
 * Recomputes the pairs that appear in the touched heights, over their whole range. Takes the newest version of each base
 * row without FINAL, which would hide the tombstones: a pair without legs must get a tombstone here.
 */
const RECOMPUTE_OF_FEW = `${RECOMPUTE}
FROM (
  SELECT account, token, argMax(if(is_deleted = 1, (toInt256(0), toUInt32(0)), (delta, legs)), seq) AS moved
  FROM {{account_ledger_by_block}}
  WHERE range = {range:UInt32}
    AND (account, token) IN (SELECT account, token FROM {{account_ledger_by_block}} WHERE ${TOUCHED})
  GROUP BY account, token, block
)
GROUP BY account, token`;

/**
 * The same. Reads the rows of the whole range in their order, whatever the number of touched heights. FINAL hides tombstones, so
 * those of the touched heights are added with zero legs.
 */
const RECOMPUTE_OF_MANY = `${RECOMPUTE}
FROM (
  SELECT account, token, block, (delta, legs) AS moved FROM {{account_ledger_by_block}} FINAL WHERE range = {range:UInt32}
  UNION ALL
  SELECT account, token, block, (toInt256(0), toUInt32(0)) FROM {{account_ledger_by_block}} WHERE ${TOUCHED} AND is_deleted = 1
)
GROUP BY account, token HAVING countIf(block BETWEEN {first:UInt32} AND {last:UInt32}) > 0`;

/** From so many heights on, RECOMPUTE_OF_MANY takes less CPU. */
const MANY_HEIGHTS = 4;

export const accountLedger: BlockProjection = {
  kind: 'clickhouse',
  name: 'account-ledger',
  version: 2,
  topic: chainBlocks,
  ddl: tableSql(import.meta.url),
  tables: {
    account_ledger: {
      columns: [
        { name: 'account', type: 'FixedString(32)' },
        { name: 'token', type: 'FixedString(32)' },
        { name: 'block_desc', type: 'UInt32' },
        { name: 'position_desc', type: 'UInt32' },
        { name: 'item_desc', type: 'UInt32' },
        { name: 'leg', type: 'UInt8' },
        { name: 'delta', type: 'Int256' },
        { name: 'kind', type: 'LowCardinality(String)' },
        { name: 'token_id', type: 'UInt256' },
        { name: 'timestamp', type: 'UInt32' },
        { name: 'tx_hash', type: 'FixedString(32)' },
        ...versionColumns,
      ],
    },
    account_ledger_by_block: {
      columns: [
        { name: 'range', type: 'UInt32' },
        { name: 'account', type: 'FixedString(32)' },
        { name: 'token', type: 'FixedString(32)' },
        { name: 'block', type: 'UInt32' },
        { name: 'delta', type: 'Int256' },
        { name: 'legs', type: 'UInt32' },
        ...versionColumns,
      ],
    },
  },
  project(item) {
    const { block } = item.message;
    const version = rowVersion(item);
    const legs = item.decoded.transfers.flatMap((transfer) => {
      // The number in a transfer of unknown standard may be an amount or an id, so it counts in no balance.
      if (transfer.kind === 'unknown') return [];
      const leg = (account: Felt, number: 1 | 2, delta: bigint) => ({
        account,
        token: transfer.token,
        block_desc: descending(block.height),
        position_desc: descending(transfer.position),
        item_desc: descending(transfer.item),
        leg: number,
        // Modulo 2^256: any contract may emit an amount of 2^255 or more, and a sum of deltas wraps the same way.
        delta: BigInt.asIntN(256, delta),
        kind: transfer.kind,
        token_id: transfer.tokenId ?? 0n,
        timestamp: block.timestamp,
        tx_hash: transfer.txHash,
        ...version,
      });
      return [leg(transfer.from, 1, -transfer.amount), leg(transfer.to, 2, transfer.amount)];
    });
    const pairs = new Map<string, { account: Felt; token: Felt; delta: bigint; legs: number }>();
    for (const { account, token, delta } of legs) {
      const key = `${account}:${token}`;
      const pair = pairs.get(key) ?? { account, token, delta: 0n, legs: 0 };
      pair.delta += delta;
      pair.legs += 1;
      pairs.set(key, pair);
    }
    return {
      account_ledger: legs,
      account_ledger_by_block: [...pairs.values()].map((pair) => ({
        range: rangeOf(block.height),
        account: pair.account,
        token: pair.token,
        block: block.height,
        delta: BigInt.asIntN(256, pair.delta),
        legs: pair.legs,
        ...version,
      })),
    };
  },
  // Readers sum the newest range block by block.
  isDerivedLast: areNewInOpenRange,
  derive: (touched) =>
    touchedRanges(touched).map(({ range, first, last, offset }) => ({
      sql: last - first + 1 < MANY_HEIGHTS ? RECOMPUTE_OF_FEW : RECOMPUTE_OF_MANY,
      params: { range, first, last, offset },
    })),
};
