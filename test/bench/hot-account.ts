import { toFelt } from '../../schemas/felt.ts';
import type { Felt } from '../../schemas/felt.ts';
import type { Probe } from './synthetic.ts';
import type { Stores } from './stores.ts';

/** Above the heights of all other made blocks, at the beginning of a range. */
const FIRST_HEIGHT = 1_048_576;
const PER_BLOCK = 1000;
/** Rows of one insert. */
const STEP = 2_000_000;
const REMEMBERED = 51;

const HOT: Felt = toFelt(0xfeedfeedn);

/**
 * An account with very many legs, made by ClickHouse itself: only in the tables that an account's page reads, so that it
 * takes a minute and not an hour. What it should show follows from the numbers alone.
 */
export async function fillHotAccount({ clickhouse, served }: Stores, legs: number): Promise<Probe> {
  const blocks = Math.ceil(legs / PER_BLOCK);
  const felt = (bytes: string): string => `toFixedString(${bytes}, 32)`;
  const hot = felt(`unhex('${HOT.slice(2)}')`);
  const hashed = (text: string): string => felt(`concat(unhex('00'), substring(SHA256(${text}), 2))`);
  for (let from = 0; from < legs; from += STEP) {
    await clickhouse.command(
      `INSERT INTO ${served.table('account_feed')}
         (account, leg, token, block_desc, position_desc, item_desc, from_address, to_address, kind, amount, token_id,
          tx_hash, event_in_tx, timestamp, fee, fee_unit, is_fee, execution_status, block_hash, seq, is_deleted)
       SELECT ${hot}, 2, ${hashed(`concat('token ', toString(number % 2000))`)},
         4294967295 - (${FIRST_HEIGHT} + intDiv(number, ${PER_BLOCK})), 4294967295 - number % ${PER_BLOCK}, 4294967295,
         ${hashed(`concat('account ', toString(number % 300000))`)}, ${hot}, 'erc20', cityHash64(number), 0,
         ${hashed(`concat('transaction ', toString(number))`)}, 0, 1800000000 + 2 * intDiv(number, ${PER_BLOCK}),
         cityHash64(number + 1), ${hashed(`'fee token'`)}, 0, 'SUCCEEDED',
         ${hashed(`concat('block ', toString(intDiv(number, ${PER_BLOCK})))`)}, 1, 0
       FROM numbers(${from}, ${Math.min(STEP, legs - from)})`,
    );
  }
  const perBlock = `SELECT toUInt32(${FIRST_HEIGHT} + number) AS height, least(${PER_BLOCK}, ${legs} - number * ${PER_BLOCK}) AS n
    FROM numbers(${blocks})`;
  await clickhouse.command(
    `INSERT INTO ${served.table('transfer_counts_by_block')} (range, subject_kind, subject, block, transfers, seq, is_deleted)
     SELECT intDiv(height, 1024), 2, ${hot}, height, n, 1, 0 FROM (${perBlock})`,
  );
  await clickhouse.command(
    `INSERT INTO ${served.table('transfer_counts')} (subject_kind, subject, range, transfers, seq, is_deleted)
     SELECT 2, ${hot}, intDiv(height, 1024) AS bucket, sum(n), 1, 0 FROM (${perBlock}) GROUP BY bucket`,
  );
  const newest = Array.from({ length: Math.min(REMEMBERED, legs) }, (_, back) => {
    const leg = legs - 1 - back;
    return `${FIRST_HEIGHT + Math.floor(leg / PER_BLOCK)}:${leg % PER_BLOCK}`;
  });
  return { felt: HOT, transfers: legs, newest };
}
