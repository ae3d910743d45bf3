import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';

import { sleep } from '../../../infra/lifecycle.ts';
import { toFelt } from '../../../schemas/felt.ts';
import { uriNode } from '../../support/uri-node.ts';
import { wanted } from '../case.ts';
import type { BenchCase } from '../case.ts';

const NFTS = 3000;
const GATEWAY_MS = 50;
/** The case fails after this time. */
const MAX_MS = 180_000;

const COLLECTION = toFelt(0xc011_0000n);

const documentOf = (name: string): string =>
  JSON.stringify({
    name,
    description: 'It walks. '.repeat(20),
    image: `ipfs://images/${name}.png`,
    attributes: [
      { trait_type: 'claws', value: 2 },
      { trait_type: 'mood', value: 'calm' },
    ],
  });

export const nftMetadata: BenchCase = {
  name: 'nft-metadata',
  summary: `NFT metadata fetched through a gateway with ${GATEWAY_MS} ms latency, until it can be queried`,
  async run(world, { samples }) {
    const count = samples ?? NFTS;
    const gateway = createServer((request, response) => {
      setTimeout(() => {
        response.setHeader('content-type', 'application/json');
        response.end(documentOf(decodeURIComponent(request.url?.split('/').at(-1) ?? '')));
      }, GATEWAY_MS);
    });
    gateway.listen(0, '127.0.0.1');
    await once(gateway, 'listening');
    const chain = await world.chain({ head: 3, perBlock: 20 });
    const node = await uriNode(chain.url);
    for (let id = 0; id < count; id += 1) node.uris.set(BigInt(id), `ipfs://documents/${id}`);
    try {
      const { port } = gateway.address() as AddressInfo;
      const { dataDir } = await world.service('nft-metadata', {
        STARKNET_RPC_URL: node.url,
        INDEX_FROM: '0',
        IPFS_GATEWAY_URL: `http://127.0.0.1:${port}`,
      });
      const { pool, served } = await world.stores(dataDir);
      const fetched = async (): Promise<number> => {
        const { rows } = await pool.query<{ n: number }>(
          `SELECT count(*)::integer AS n FROM ${served.schema('nft-metadata')}.nft_metadata WHERE token = $1 AND is_fetched`,
          [COLLECTION],
        );
        return rows[0]?.n ?? 0;
      };
      world.say(`fetching ${count.toLocaleString('en-US')}`);
      const began = performance.now();
      await pool.query(
        `INSERT INTO tds.nft_fetches (token, token_id, standard, next_at)
         SELECT $1, n, 'erc721', $2 FROM generate_series(0, $3::integer - 1) AS n`,
        [COLLECTION, Date.now(), count],
      );
      while ((await fetched()) < count && performance.now() - began < MAX_MS) await sleep(100);
      const seconds = (performance.now() - began) / 1000;
      return {
        figures: [
          { name: 'metadata fetched', value: count / seconds, unit: '1/s', want: wanted.nftFetchRate },
        ],
        completeness: [{ what: 'NFTs with metadata', expected: count, found: await fetched() }],
      };
    } finally {
      await node.close();
      gateway.close();
      gateway.closeAllConnections();
    }
  },
};
