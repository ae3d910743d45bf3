/**
 * Checks a transfer by a node of your own: `NODE_URL=http://127.0.0.1:9545 node verify-transfer.ts 0xTXHASH EVENT_INDEX`.
 */
import { TokenDataClient, verifyProof } from 'token-data-service-client';

const { TDS_URL = 'http://127.0.0.1:8080', TDS_KEY = '', NODE_URL = '' } = process.env;
const [txhash = '', index = ''] = process.argv.slice(2);
const client = new TokenDataClient({ baseUrl: TDS_URL, apiKey: TDS_KEY });

// Throws unless it is the transfer that is asked for, and follows from an event of a block with this hash.
const asked = { txhash, event_index: Number(index) };
const proof = await client.getTransferProof({ query: asked });
const { number, hash } = await verifyProof(proof, asked);

const params = { block_id: { block_number: number } };
const response = await fetch(NODE_URL, {
  method: 'POST',
  headers: { 'content-type': 'application/json' },
  body: JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'starknet_getBlockWithTxHashes', params }),
});
const { result } = (await response.json()) as { result?: { block_hash: string } };
if (result === undefined || BigInt(result.block_hash) !== BigInt(hash))
  throw new Error(`the node has no block ${number} with the hash ${hash}`);
const { value, from_address: from, to_address: to } = proof.transfer;
console.log(`block ${number} of the node has the transfer of ${value} from ${from} to ${to}`);
