import type { Row } from '../../infra/clickhouse/row-binary.ts';
import { STRK_TOKEN, ZERO_FELT } from '../../schemas/felt.ts';
import type { Felt } from '../../schemas/felt.ts';
import type { TokenStandard } from '../../schemas/messages/common.ts';
import { nftNumber } from '../support/faults/tables.ts';
import type { SimBlock } from './chain.ts';

/*
 * Expected table contents, computed from the canonical chain and the intended meaning of each event, without the decoder
 * or the projections. Columns follow the table.sql files; versions and log offsets are left out.
 */

export interface ExpectedTables {
  readonly tables: Readonly<Record<string, Row[]>>;
  /** Ids of the malformed events. */
  readonly malformed: ReadonlySet<string>;
}

/** One transfer, or one item of a batch transfer. */
interface ExpectedTransfer {
  readonly token: Felt;
  readonly kind: TokenStandard;
  readonly from: Felt;
  readonly to: Felt;
  readonly amount: bigint;
  readonly id: bigint | null;
  readonly position: number;
  readonly item: number;
  readonly tx: SimBlock['transactions'][number];
  readonly eventInTx: number;
  readonly isFee: boolean;
}

const RANGE = 1024;
const desc = (number: number): number => 4_294_967_295 - number;

export function expectedTables(
  blocks: readonly SimBlock[],
  standardOf: (contract: Felt) => TokenStandard,
  chunkOf: (height: number) => string,
): ExpectedTables {
  const tables: Record<string, Row[]> = {
    transfers: [],
    nft_transfers: [],
    nft_moves: [],
    nft_places: [],
    account_feed: [],
    account_ledger: [],
    account_ledger_by_block: [],
    account_ledger_ranges: [],
    tx_index: [],
    block_events: [],
    indexed_blocks: [],
    indexed_block_ranges: [],
    transfer_counts_by_block: [],
    transfer_counts: [],
  };
  const malformed = new Set<string>();
  const put = (table: string, row: Row): void => void tables[table]?.push(row);
  /** (range, kind of subject, subject) → transfers. */
  const counts = new Map<string, number>();
  /** (account, token, range) → sum and number of its legs. */
  const ledgerRanges = new Map<string, { delta: bigint; legs: number }>();
  const ranges = new Map<
    string,
    { blocks: number; transfers: number; first: number; last: number; moved: number }
  >();

  for (const block of blocks) {
    const { height, hash, parent_hash, timestamp } = block.body;
    const { transfers: moved, malformedPositions, events } = transfersOf(block, standardOf);
    for (const position of malformedPositions) malformed.add(`${hash}:${position}`);
    const inBlock = new Map<string, number>();
    const pairs = new Map<string, { delta: bigint; legs: number }>();
    const countOne = (subject: string): void => void inBlock.set(subject, (inBlock.get(subject) ?? 0) + 1);

    for (const one of moved) {
      const { token, kind, from, to, amount, id } = one;
      const key = { block_desc: desc(height), position_desc: desc(one.position), item_desc: desc(one.item) };
      const whole = {
        token,
        ...key,
        from_address: from,
        to_address: to,
        kind,
        amount,
        token_id: id ?? 0n,
        tx_hash: one.tx.body.hash,
        event_in_tx: one.eventInTx,
        timestamp,
        fee: BigInt(one.tx.body.fee),
        fee_unit: STRK_TOKEN,
        is_fee: one.isFee ? 1 : 0,
        execution_status: one.tx.body.execution_status,
        block_hash: hash,
      };
      put('transfers', whole);
      countOne(`1|${token}`);
      for (const account of new Set([from, to])) {
        const leg = from === to ? 3 : account === from ? 1 : 2;
        put('account_feed', { account, leg, ...whole });
        countOne(`2|${account}`);
      }
      const facts = { kind, tx_hash: one.tx.body.hash, timestamp };
      if (id !== null) {
        put('nft_transfers', {
          token,
          token_id: id,
          ...key,
          from_address: from,
          to_address: to,
          amount,
          ...facts,
        });
        const nft = nftNumber(token, id);
        put('nft_places', { nft, ...key });
        for (const account of new Set([from, to])) {
          if (account === ZERO_FELT) continue;
          const leg = from === to ? 3 : account === from ? 1 : 2;
          put('nft_moves', { account, token, token_id: id, ...key, leg, kind, nft });
        }
      }
      if (kind === 'unknown') continue;
      for (const [account, leg, delta] of [
        [from, 1, -amount],
        [to, 2, amount],
      ] as const) {
        addTo(pairs, `${account}|${token}`, { delta, legs: 1 });
        put('account_ledger', {
          account,
          token,
          ...key,
          leg,
          delta: signed(delta),
          token_id: id ?? 0n,
          ...facts,
        });
      }
    }

    for (const tx of block.transactions) {
      const own = moved.filter((one) => one.tx === tx);
      if (own.length === 0) continue;
      put('tx_index', {
        tx_hash: tx.body.hash,
        block_desc: desc(height),
        timestamp,
        tokens: own.map(({ token }) => token),
        positions: own.map(({ position }) => position),
        items: own.map(({ item }) => item),
      });
    }
    const chunk = chunkOf(height);
    put('indexed_blocks', {
      block_desc: desc(height),
      block_hash: hash,
      parent_hash,
      timestamp,
      chunk,
      transactions: block.transactions.length,
      events,
      transfers: moved.length,
      malformed: malformedPositions.length,
      // The simulated node gives no commitments.
      event_check: '',
      tokens: [...new Set(moved.map(({ token }) => token))],
    });

    put('block_events', eventsRow(block));

    const range = Math.floor(height / RANGE);
    for (const [subject, transfers] of inBlock) {
      const [kind = '', felt = ''] = subject.split('|');
      put('transfer_counts_by_block', {
        range,
        subject_kind: Number(kind),
        subject: felt,
        block: height,
        transfers,
      });
      counts.set(`${range}|${subject}`, (counts.get(`${range}|${subject}`) ?? 0) + transfers);
    }
    for (const [pair, { delta, legs }] of pairs) {
      const [account = '', token = ''] = pair.split('|');
      put('account_ledger_by_block', { range, account, token, block: height, delta: signed(delta), legs });
      addTo(ledgerRanges, `${pair}|${range}`, { delta, legs });
    }
    const rangeKey = `${range}|${chunk}`;
    const previous = ranges.get(rangeKey) ?? {
      blocks: 0,
      transfers: 0,
      first: height,
      last: height,
      moved: 4_294_967_295,
    };
    ranges.set(rangeKey, {
      blocks: previous.blocks + 1,
      transfers: previous.transfers + moved.length,
      first: previous.first,
      last: height,
      moved: moved.length > 0 ? height : previous.moved,
    });
  }

  for (const [key, transfers] of counts) {
    const [range = '', kind = '', subject = ''] = key.split('|');
    put('transfer_counts', { subject_kind: Number(kind), subject, range: Number(range), transfers });
  }
  for (const [key, { delta, legs }] of ledgerRanges) {
    const [account = '', token = '', range = ''] = key.split('|');
    put('account_ledger_ranges', { account, token, range: Number(range), delta: signed(delta), legs });
  }
  for (const [key, { blocks: indexed, transfers, first, last, moved }] of ranges) {
    const [range = '', chunk = ''] = key.split('|');
    put('indexed_block_ranges', {
      chunk,
      range: Number(range),
      blocks: indexed,
      transfers,
      verified: 0,
      old_version: 0,
      no_commitment: 0,
      mismatched: 0,
      first_block: first,
      last_block: last,
      latest_transfer_block: moved,
    });
  }
  return { tables, malformed };
}

function addTo(
  sums: Map<string, { delta: bigint; legs: number }>,
  key: string,
  more: { delta: bigint; legs: number },
): void {
  const { delta, legs } = sums.get(key) ?? { delta: 0n, legs: 0 };
  sums.set(key, { delta: delta + more.delta, legs: legs + more.legs });
}

/** Wraps into an Int256, modulo 2^256. */
function signed(delta: bigint): bigint {
  const whole = ((delta % MODULUS) + MODULUS) % MODULUS;
  return whole < MODULUS / 2n ? whole : whole - MODULUS;
}
const MODULUS = 2n ** 256n;

function transfersOf(
  block: SimBlock,
  standardOf: (contract: Felt) => TokenStandard,
): { transfers: ExpectedTransfer[]; malformedPositions: number[]; events: number } {
  const transfers: ExpectedTransfer[] = [];
  const malformedPositions: number[] = [];
  let position = 0;
  for (const tx of block.transactions) {
    for (const [eventInTx, meaning] of tx.meanings.entries()) {
      const token = tx.body.events[eventInTx]?.from_address;
      if (token === undefined) throw new RangeError('meaning without an event');
      const standard = standardOf(token);
      const isFee = tx.paysFee && eventInTx === tx.meanings.length - 1;
      const at = { token, position, tx, eventInTx };
      if (meaning.kind === 'malformed' || (meaning.kind === 'numberless' && standard === 'erc721')) {
        malformedPositions.push(position);
      } else if (meaning.kind === 'items') {
        for (const [item, [id, amount]] of meaning.items.entries()) {
          transfers.push({ ...at, ...meaning, kind: 'erc1155', amount, id, item, isFee: false });
        }
      } else if (meaning.kind !== 'nothing') {
        const number = meaning.kind === 'transfer' ? meaning.number : 0n;
        const isNft = standard === 'erc721';
        const amount = isNft ? 1n : number;
        const kind = standard === 'erc1155' ? 'unknown' : standard;
        transfers.push({ ...at, ...meaning, kind, amount, id: isNft ? number : null, item: 0, isFee });
      }
      position += 1;
    }
  }
  return { transfers, malformedPositions, events: position };
}

/** The header and raw events of a block whose header has an event commitment. */
function eventsRow({ body }: SimBlock): Row {
  const { height, hash, timestamp, transactions, header } = body;
  const emitting = header === undefined ? [] : transactions.filter(({ events }) => events.length > 0);
  const events = emitting.flatMap((transaction) => transaction.events);
  const hashed = {
    height,
    parent_hash: body.parent_hash,
    timestamp,
    sequencer_address: body.sequencer_address,
    starknet_version: body.starknet_version,
    transaction_count: body.transaction_count,
    event_count: body.event_count,
    header,
  };
  return {
    block_desc: desc(height),
    block_hash: hash,
    timestamp,
    header: header === undefined ? '' : JSON.stringify(hashed),
    tx_hashes: emitting.map((transaction) => transaction.hash),
    tx_events: emitting.map((transaction) => transaction.events.length),
    event_keys: events.map(({ keys }) => keys.length),
    event_data: events.map(({ data }) => data.length),
    felts: events.flatMap(({ from_address, keys, data }) => [from_address, ...keys, ...data]),
  };
}
