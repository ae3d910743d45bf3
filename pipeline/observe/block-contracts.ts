import { z } from 'zod';

import { jsonOf } from '../../infra/json.ts';
import { contractsMap, rawEvent } from '../../schemas/messages/chain-blocks.ts';
import type { RawEvent } from '../../schemas/messages/chain-blocks.ts';
import { height } from '../../schemas/messages/common.ts';

/** The fields of a message of `chain.blocks` that say which contracts its block touches. */
const blockContracts = z.object({
  type: z.string(),
  seq: z.int(),
  cause: z.string(),
  block: z.object({ height }),
  contracts: contractsMap,
});
export type BlockContracts = z.infer<typeof blockContracts>;

const wholeBody = z.object({
  block: z.object({ transactions: z.array(z.object({ events: z.array(rawEvent) })) }),
});

const TRANSACTIONS = '"transactions":[';
const CONTRACTS = '"contracts":{';
const FROM_ADDRESS = '"from_address":"';
const FELT_LENGTH = 66;

/**
 * The bytes of a message's transactions, which are 99 % of it: the ingester writes them between the other fields of the
 * block and the contracts. Neither marker can occur inside a JSON string, where its quotes would be escaped.
 *
 * @returns null where the message has another layout
 */
function transactionsIn(value: Buffer): { readonly from: number; readonly to: number } | null {
  const from = value.indexOf(TRANSACTIONS);
  const to = value.lastIndexOf(CONTRACTS);
  return from !== -1 && to > from ? { from, to } : null;
}

/**
 * Parses a message without its transactions. A message with another layout does not parse that way, and is parsed as a
 * whole.
 *
 * @returns null where the message is invalid
 */
export function readBlockContracts(value: Buffer): BlockContracts | null {
  const body = transactionsIn(value);
  const short =
    body === null
      ? ''
      : `${value.toString('utf8', 0, body.from)}${TRANSACTIONS}]},${value.toString('utf8', body.to)}`;
  return (
    (body === null ? null : parse(blockContracts, short)) ?? parse(blockContracts, value.toString('utf8'))
  );
}

/**
 * Reads the events of these contracts, in chain order; parses nothing else of the transactions.
 *
 * @returns null where one of them, or the layout, is invalid
 */
export function readEventsOf(contracts: ReadonlySet<string>, value: Buffer): RawEvent[] | null {
  const body = transactionsIn(value);
  if (body === null) {
    const events = parse(wholeBody, value.toString('utf8'))?.block.transactions.flatMap((tx) => tx.events);
    return events?.filter(({ from_address: from }) => contracts.has(from)) ?? null;
  }
  // An event is a flat object of felts, which are ASCII. Latin-1 is the fastest text to make and search.
  const text = value.toString('latin1', body.from, body.to);
  const events: RawEvent[] = [];
  for (let at = text.indexOf(FROM_ADDRESS); at !== -1; at = text.indexOf(FROM_ADDRESS, at + FELT_LENGTH)) {
    const begin = at + FROM_ADDRESS.length;
    if (!contracts.has(text.slice(begin, begin + FELT_LENGTH))) continue;
    const event = parse(rawEvent, text.slice(text.lastIndexOf('{', at), text.indexOf('}', at) + 1));
    if (event === null) return null;
    events.push(event);
  }
  return events;
}

function parse<T>(schema: z.ZodType<T>, text: string): T | null {
  return schema.safeParse(jsonOf(text)).data ?? null;
}
