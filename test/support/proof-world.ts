import { TokenDataClient } from '../../client/src/client.ts';
import type { TransferProof } from '../../client/src/proof.ts';
import { createClickHouse } from '../../infra/clickhouse/client.ts';
import { openBuild } from '../../projections/engine/builds.ts';
import { chainProjections } from '../../projections/index.ts';
import type { BlockItem, BlockProjection } from '../../projections/define.ts';
import { decodeBlock, eventIndex } from '../../schemas/decode/index.ts';
import type { Transfer } from '../../schemas/decode/index.ts';
import type { BlockBody, ContractsMap } from '../../schemas/messages/chain-blocks.ts';
import { apiWorld } from './api-world.ts';
import type { ApiWorld } from './api-world.ts';
import { writeSmallChain } from './small-chain.ts';
import { writeItems } from './transfer-world.ts';

/** An API over blocks of the log, of which it proves the transfers. */
export interface ProofWorld {
  readonly api: ApiWorld;
  readonly client: TokenDataClient;
  readonly apiKey: string;
  write(
    bodies: readonly BlockBody[],
    contracts: ContractsMap,
    type?: 'block.accepted' | 'block.reverted',
    projections?: readonly BlockProjection[],
  ): Promise<void>;
  prove(transfer: Pick<Transfer, 'txHash' | 'position' | 'item'>): Promise<TransferProof>;
  close(): Promise<void>;
}

export async function proofWorld(): Promise<ProofWorld> {
  const api = await apiWorld();
  const { apiKey } = await writeSmallChain(api, []);
  const clickhouse = createClickHouse(api.env['CLICKHOUSE_URL'] ?? '', { application: 'test' });
  const builds = [];
  for (const projection of chainProjections) builds.push(await openBuild(api.pool, clickhouse, projection));
  const names = Object.assign({}, ...builds.map((build) => build.names));
  const client = new TokenDataClient({ baseUrl: api.url, apiKey });
  let seq = 0;
  return {
    api,
    client,
    apiKey,
    async write(bodies, contracts, type = 'block.accepted', projections = chainProjections) {
      const items = bodies.map((block): BlockItem => {
        seq += 1;
        return {
          message: { type, v: 1, seq, cause: 'new', chunk: 'live', block, contracts },
          decoded: decodeBlock(block, contracts),
          partition: 0,
          offset: seq,
        };
      });
      await writeItems(clickhouse, items, projections, names);
    },
    prove: ({ txHash, position, item }) =>
      client.getTransferProof({ query: { txhash: txHash, event_index: eventIndex(position, item) } }),
    async close() {
      await clickhouse.close();
      await api.close();
    },
  };
}
