import { z } from 'zod';

import { contractsMap } from '../../schemas/messages/chain-blocks.ts';
import { height } from '../../schemas/messages/common.ts';

/** What of a message of `chain.blocks` says which tokens there are. The rest of a block is not looked at. */
const blockNews = z.object({
  type: z.string(),
  seq: z.int(),
  cause: z.string(),
  block: z.object({ height }),
  contracts: contractsMap,
});
export type BlockNews = z.infer<typeof blockNews>;

const TRANSACTIONS = '"transactions":[';
const CONTRACTS = '"contracts":{';

/**
 * `null` when it cannot be read. The transactions, all but a hundredth of a message, are cut out before it is parsed: as
 * the ingester writes it, they stand between the block's other fields and the contracts. Neither mark can be inside a JSON
 * string, where its quotes would be escaped. Laid out otherwise, a message does not parse so, and is read whole.
 */
export function readBlockNews(value: Buffer): BlockNews | null {
  const from = value.indexOf(TRANSACTIONS);
  const to = value.lastIndexOf(CONTRACTS);
  const isCut = from !== -1 && to > from;
  const short = isCut
    ? `${value.toString('utf8', 0, from)}${TRANSACTIONS}]},${value.toString('utf8', to)}`
    : '';
  return (isCut ? parse(short) : null) ?? parse(value.toString('utf8'));
}

function parse(text: string): BlockNews | null {
  try {
    return blockNews.parse(JSON.parse(text));
  } catch {
    return null;
  }
}
