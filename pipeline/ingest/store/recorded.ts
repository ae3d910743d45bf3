import { promisify } from 'node:util';
import { constants, zstdCompress, zstdDecompress } from 'node:zlib';

import { z } from 'zod';

import { blockBody, contractsMap } from '../../../schemas/messages/chain-blocks.ts';
import type { BlockBody } from '../../../schemas/messages/chain-blocks.ts';
import { felt, height } from '../../../schemas/messages/common.ts';
import type { IngestStore, RecordedBlock } from '../ports.ts';
import type { Statements } from './sql.ts';

type RecordedStore = Pick<
  IngestStore,
  'recordedHeaders' | 'recordedBlocks' | 'record' | 'markForRevert' | 'deleteReverted' | 'setFinal'
>;

const compress = promisify(zstdCompress);
const decompress = promisify(zstdDecompress);
/** Level 1: some 120 MB/s, and a block of 974 kB becomes 114 kB. */
const level = { params: { [constants.ZSTD_c_compressionLevel]: 1 } };

/** As it is recorded. */
export async function compressBody(body: BlockBody): Promise<Buffer> {
  return await compress(Buffer.from(JSON.stringify(body)), level);
}

async function readBody(recorded: Buffer): Promise<BlockBody> {
  const json: unknown = JSON.parse((await decompress(recorded)).toString('utf8'));
  return blockBody.parse(json);
}

const headerRow = z
  .object({ height, hash: felt, parent_hash: felt, intent: z.enum(['accept', 'revert']) })
  .transform(({ parent_hash, ...row }) => ({ ...row, parentHash: parent_hash }));
const compressed = z.instanceof(Buffer);
const bodyRow = z.object({
  maps: z.array(contractsMap).min(1),
  body: compressed,
  rereads: z.array(compressed),
});

/** Takes the chunk's row for the rest of the statement if the lease is still held: a new holder waits for it. */
const held = 'held AS (SELECT 1 FROM tds.chunks WHERE name = $1 AND epoch = $2 FOR NO KEY UPDATE)';
const answer = 'SELECT count(*) AS held FROM held';

/** Blocks written down before they are published. */
export function createRecordedStore({ rows, fenced }: Statements): RecordedStore {
  return {
    recordedHeaders: (fence) =>
      rows(
        headerRow,
        `SELECT height, hash, parent_hash, intent FROM tds.recorded_blocks WHERE chunk = $1 ORDER BY height`,
        [fence.name],
      ),
    async recordedBlocks(name, from, to) {
      const found = await rows(
        bodyRow,
        `SELECT maps, body, rereads FROM tds.recorded_blocks WHERE chunk = $1 AND height BETWEEN $2 AND $3 ORDER BY height`,
        [name, from, to],
      );
      return await Promise.all(
        found.map(async ({ maps, body, rereads }): Promise<RecordedBlock> => ({
          maps,
          body: await readBody(body),
          rereads: await Promise.all(rereads.map(readBody)),
        })),
      );
    },
    async record(fence, blocks) {
      const bodies = await Promise.all(blocks.map(({ body }) => compressBody(body)));
      await fenced(
        fence,
        // A height that is recorded already refuses the statement: its block is to be settled first.
        `WITH ${held}, done AS (
           INSERT INTO tds.recorded_blocks (chunk, height, hash, parent_hash, intent, maps, body)
           SELECT $1, given.height, given.hash, given.parent_hash, 'accept', given.maps::jsonb, given.body
           FROM unnest($3::bigint[], $4::text[], $5::text[], $6::text[], $7::bytea[])
             AS given (height, hash, parent_hash, maps, body)
           WHERE EXISTS (SELECT 1 FROM held))
         ${answer}`,
        [
          blocks.map(({ body }) => body.height),
          blocks.map(({ body }) => body.hash),
          blocks.map(({ body }) => body.parent_hash),
          blocks.map(({ maps }) => JSON.stringify(maps)),
          bodies,
        ],
      );
    },
    markForRevert: (fence, fork) =>
      fenced(
        fence,
        `WITH held AS (
           UPDATE tds.chunks SET cursor = LEAST(cursor, $3::bigint + 1), updated_at = now()
           WHERE name = $1 AND epoch = $2 RETURNING 1),
         done AS (
           UPDATE tds.recorded_blocks SET intent = 'revert'
           WHERE chunk = $1 AND height > $3::bigint AND EXISTS (SELECT 1 FROM held))
         ${answer}`,
        [fork],
      ),
    deleteReverted: (fence, from) =>
      fenced(
        fence,
        `WITH ${held}, done AS (
           DELETE FROM tds.recorded_blocks
           WHERE chunk = $1 AND height >= $3 AND intent = 'revert' AND EXISTS (SELECT 1 FROM held))
         ${answer}`,
        [from],
      ),
    setFinal: (fence, point) =>
      fenced(
        fence,
        `WITH held AS (
           UPDATE tds.chunks SET final_height = $3, final_hash = $4
           WHERE name = $1 AND epoch = $2 AND final_height < $3 AND cursor > $3 RETURNING 1),
         done AS (
           DELETE FROM tds.recorded_blocks
           WHERE chunk = $1 AND height <= $3 AND EXISTS (SELECT 1 FROM held))
         ${answer}`,
        [point.height, point.hash],
      ),
  };
}
