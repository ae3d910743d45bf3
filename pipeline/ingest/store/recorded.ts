import { promisify } from 'node:util';
import { constants, zstdCompress, zstdDecompress } from 'node:zlib';

import { z } from 'zod';

import { blockBody, contractsMap } from '../../../schemas/messages/chain-blocks.ts';
import type { BlockBody } from '../../../schemas/messages/chain-blocks.ts';
import { felt, height } from '../../../schemas/messages/common.ts';
import type { IngestStore, RecordedBlock } from '../ports.ts';
import { FENCE, LEASE } from './sql.ts';
import type { Statements } from './sql.ts';

const compress = promisify(zstdCompress);
const decompress = promisify(zstdDecompress);
/** Level 1: about 120 MB/s; a block of 974 kB becomes 114 kB. */
const level = { params: { [constants.ZSTD_c_compressionLevel]: 1 } };

export async function compressBody(body: BlockBody): Promise<Buffer> {
  return await compress(Buffer.from(JSON.stringify(body)), level);
}

async function decompressBody(compressed: Buffer): Promise<BlockBody> {
  const json: unknown = JSON.parse((await decompress(compressed)).toString('utf8'));
  return blockBody.parse(json);
}

const headerRow = z
  .object({ height, hash: felt, parent_hash: felt, intent: z.enum(['accept', 'revert']) })
  .transform(({ parent_hash, ...row }) => ({ ...row, parentHash: parent_hash }));
const compressedBody = z.instanceof(Buffer);
const blockRow = z.object({
  maps: z.array(contractsMap).min(1),
  body: compressedBody,
  rereads: z.array(compressedBody),
});

/** Blocks that are not final, stored before they are published. */
export function createRecordedStore({ rows, fenced }: Statements) {
  return {
    recordedHeaders: (fence) =>
      rows(
        headerRow,
        'SELECT height, hash, parent_hash, intent FROM tds.recorded_blocks WHERE chunk = $1 ORDER BY height',
        [fence.name],
      ),
    async recordedBlocks(name, from, to) {
      const found = await rows(
        blockRow,
        'SELECT maps, body, rereads FROM tds.recorded_blocks WHERE chunk = $1 AND height BETWEEN $2 AND $3 ORDER BY height',
        [name, from, to],
      );
      return await Promise.all(
        found.map(async ({ maps, body, rereads }): Promise<RecordedBlock> => ({
          maps,
          body: await decompressBody(body),
          rereads: await Promise.all(rereads.map(decompressBody)),
        })),
      );
    },
    async record(fence, blocks) {
      const bodies = await Promise.all(blocks.map(({ body }) => compressBody(body)));
      await fenced(
        fence,
        // Fails on a height that is already recorded: that block must be confirmed or reverted first.
        `WITH ${LEASE}, inserted AS (
           INSERT INTO tds.recorded_blocks (chunk, height, hash, parent_hash, intent, maps, body)
           SELECT $1, given.height, given.hash, given.parent_hash, 'accept', given.maps::jsonb, given.body
           FROM unnest($4::bigint[], $5::text[], $6::text[], $7::text[], $8::bytea[])
             AS given (height, hash, parent_hash, maps, body)
           WHERE EXISTS (SELECT 1 FROM lease))
         SELECT revision FROM lease`,
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
        `WITH lease AS (
           UPDATE tds.chunks SET cursor = LEAST(cursor, $4::bigint + 1), updated_at = now(), ${FENCE}
           RETURNING revision),
         marked AS (
           UPDATE tds.recorded_blocks SET intent = 'revert'
           WHERE chunk = $1 AND height > $4::bigint AND EXISTS (SELECT 1 FROM lease))
         SELECT revision FROM lease`,
        [fork],
      ),
    deleteReverted: (fence, from) =>
      fenced(
        fence,
        `WITH ${LEASE}, deleted AS (
           DELETE FROM tds.recorded_blocks
           WHERE chunk = $1 AND height >= $4 AND intent = 'revert' AND EXISTS (SELECT 1 FROM lease))
         SELECT revision FROM lease`,
        [from],
      ),
    setFinal: (fence, point) =>
      fenced(
        fence,
        `WITH lease AS (
           UPDATE tds.chunks SET final_height = $4, final_hash = $5, ${FENCE}
             AND final_height < $4 AND cursor > $4 RETURNING revision),
         deleted AS (
           DELETE FROM tds.recorded_blocks
           WHERE chunk = $1 AND height <= $4 AND EXISTS (SELECT 1 FROM lease))
         SELECT revision FROM lease`,
        [point.height, point.hash],
      ),
  } satisfies Partial<IngestStore>;
}
