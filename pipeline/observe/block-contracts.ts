import { z } from 'zod';

import { contractsMap } from '../../schemas/messages/chain-blocks.ts';
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

const TRANSACTIONS = '"transactions":[';
const CONTRACTS = '"contracts":{';

/**
 * Parses a message without its transactions, which are 99 % of it: the ingester writes them between the other fields of the
 * block and the contracts. Neither marker can occur inside a JSON string, where its quotes would be escaped. A message
 * with another layout does not parse that way, and is parsed as a whole.
 *
 * @returns null where the message is invalid
 */
export function readBlockContracts(value: Buffer): BlockContracts | null {
  const from = value.indexOf(TRANSACTIONS);
  const to = value.lastIndexOf(CONTRACTS);
  const canSkip = from !== -1 && to > from;
  const short = canSkip
    ? `${value.toString('utf8', 0, from)}${TRANSACTIONS}]},${value.toString('utf8', to)}`
    : '';
  return (canSkip ? parse(short) : null) ?? parse(value.toString('utf8'));
}

function parse(text: string): BlockContracts | null {
  try {
    return blockContracts.parse(JSON.parse(text));
  } catch {
    return null;
  }
}
