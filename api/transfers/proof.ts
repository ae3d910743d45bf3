import { z } from 'zod';

import { eventsOfBlock } from '../../projections/block-events/queries.ts';
import type { ServedTables } from '../../projections/served.ts';
import type { createFinalHeights } from '../../projections/chain-status/queries.ts';
import { tokensByAddress } from '../../projections/tokens/queries.ts';
import { MAX_HEIGHT, newestTransfer, transferOfTransaction } from '../../projections/transfers/queries.ts';
import { proofAnswer } from '../../schemas/api/proofs.ts';
import type { ProofAnswer } from '../../schemas/api/proofs.ts';
import { blockHash } from '../../schemas/commitment/block-hash.ts';
import type { HashedTransaction } from '../../schemas/commitment/events.ts';
import { EVENT_INDEX_ITEM_FACTOR } from '../../schemas/decode/index.ts';
import type { Felt } from '../../schemas/felt.ts';
import type { ClickHouseFor } from '../http/clickhouse.ts';
import { HttpError, notFound } from '../http/errors.ts';
import { hash, integer } from '../http/params.ts';
import { defineRoute } from '../http/route.ts';
import type { Route } from '../http/route.ts';
import { readLimit } from '../http/stated-limits.ts';
import { isoSeconds } from '../http/times.ts';
import type { EventTrees } from './event-trees.ts';
import { withEvents } from './indexed-events.ts';
import { presentTransfer, statusOf } from './present.ts';

/** 2^32 items at 2^20 positions. */
const MAX_EVENT_INDEX = 2 ** 52 - 1;

export interface ProofRouteDeps {
  readonly clickhouseFor: ClickHouseFor;
  readonly finalHeights: ReturnType<typeof createFinalHeights>;
  readonly trees: EventTrees;
}

export function proofRoute({ clickhouseFor, finalHeights, trees }: ProofRouteDeps): Route {
  return defineRoute({
    id: 'getTransferProof',
    method: 'GET',
    path: '/api/transfers/proof/',
    summary: 'Prove a transfer',
    description: [
      'Returns the raw event of a transfer, the block header, and the path from the event to `event_commitment` in that header. With',
      'these, a client can verify that the block with this hash contains the transfer, without trusting this service; `verifyProof` of',
      'the client library does so. Ask another node, or L1, whether the chain contains the block. The leaf is the Poseidon hash of',
      '`from_address`, `transaction_hash`, the number of keys, the keys, the number of data, and the data. A `binary` step hashes the',
      'node with its sibling. An `edge` step hashes the node with `bits` and adds `length`. Returns 409 with code `unverifiable` if',
      'the commitment or the block hash cannot be recomputed, as for blocks before Starknet 0.13.2.',
    ].join(' '),
    tag: 'Transfers',
    auth: 'key',
    asOf: true,
    query: z.object({
      txhash: hash(),
      event_index: integer({
        min: 0,
        max: MAX_EVENT_INDEX,
        description: '`event_index` of the transfer as `/api/transfers/` shows it',
      }),
    }),
    limits: [readLimit('proof')],
    response: { 200: proofAnswer },
    errors: [404, 409, 503],
    async handler({ input: { query }, served, request, asOf, pool }) {
      const clickhouse = clickhouseFor(request, { readClass: 'proof' });
      // Read first: a block at or below it is not reverted afterwards.
      const l1Height = asOf === null ? await finalHeights(served) : null;
      const upTo = asOf?.height ?? MAX_HEIGHT;
      const { transfer, events } = await findTransfer(clickhouse, served, query, upTo);
      if (events.kept === null)
        throw unverifiable('its block has no event commitment that can be recomputed');
      const { block, transactions } = events.kept;
      const { header } = block;
      const event = eventAt(transactions, transfer.position);
      const tree = await trees.of(events, transactions, request.signal);
      if (header === undefined || block.transaction_count === null || block.event_count === null)
        throw unverifiable('the header of its block is not known');
      if (blockHash(block) !== events.hash)
        throw unverifiable('its header does not give the hash of its block');
      if (tree.root !== header.event_commitment || event?.transaction_hash !== transfer.txhash)
        throw unverifiable('the events of its block do not match the event commitment in the header');
      const tokens = await tokensByAddress(pool, served.schema('tokens'), [transfer.token]);
      const { height, timestamp, transaction_count, event_count } = block;
      const body: ProofAnswer = {
        block: {
          number: height,
          hash: events.hash,
          parent_hash: block.parent_hash,
          timestamp: isoSeconds(timestamp),
          sequencer_address: block.sequencer_address,
          starknet_version: block.starknet_version,
          transaction_count,
          event_count,
          ...header,
        },
        event,
        path: tree.pathOf(event.index),
        root: tree.root,
        finality: statusOf(height, l1Height),
        transfer: presentTransfer(transfer, tokens.get(transfer.token), l1Height),
      };
      return { status: 200, body };
    },
  });
}

/** The transfer with the events of its block; throws 404 without such a transfer. */
async function findTransfer(
  clickhouse: ReturnType<ClickHouseFor>,
  tables: ServedTables,
  { txhash, event_index: index }: { readonly txhash: Felt; readonly event_index: number },
  upTo: number,
) {
  const place = {
    position: index % EVENT_INDEX_ITEM_FACTOR,
    item: Math.floor(index / EVENT_INDEX_ITEM_FACTOR),
  };
  const filters = { felts: { txhash }, lo: 0, hi: upTo };
  const { query, params } = newestTransfer(transferOfTransaction(tables, place), filters);
  const read = await withEvents(
    { clickhouse, tables },
    async () => {
      const [found] = await clickhouse.rows(query, params);
      if (found === undefined) throw notFound('No such transfer is indexed.');
      return { transfer: found.transfer, height: found.transfer.block, hash: found.blockHash };
    },
    async (height) => await eventsOfBlock(clickhouse, tables, height),
  );
  if (read === null) throw unverifiable('the events of its block are not kept');
  return { transfer: read.found.transfer, events: read.events };
}

function eventAt(transactions: readonly HashedTransaction[], position: number) {
  let first = 0;
  for (const { hash: transaction, events } of transactions) {
    const event = events[position - first];
    if (event !== undefined)
      return {
        index: position,
        from_address: event.from_address,
        transaction_hash: transaction,
        keys: event.keys,
        data: event.data,
      };
    first += events.length;
  }
  return null;
}

const unverifiable = (why: string): HttpError =>
  new HttpError(409, 'unverifiable', `The transfer cannot be proved: ${why}.`);
