import { mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { join } from 'node:path';

import { z } from 'zod';

import { sha256 } from '../../../infra/embedded/starknet/hash.ts';
import { heightOf, type Ledger } from '../../../infra/embedded/starknet/ledger.ts';
import { blockId } from '../../../infra/embedded/starknet/protocol.ts';
import { blockWithReceipts, type RunCall } from '../../../infra/embedded/starknet/rpc.ts';
import type { ScriptedChain } from './scripted-chain.ts';
import { countBlock, emptyTruth, type Truth } from './counts.ts';

const counts = z.record(z.string(), z.number());
const indexSchema = z.object({
  identity: z.string(),
  offsets: z.array(z.number()),
  hashes: z.array(z.string()),
  truth: z.object({
    from: z.number(),
    to: z.number(),
    blocks: z.number(),
    transactions: z.number(),
    events: z.number(),
    transfers: z.number(),
    fees: z.number(),
    malformed: z.number(),
    byToken: counts,
    byAccount: counts,
    byRange: counts,
  }),
});

export type Prepared = {
  truth: Truth;
  read(height: number): Promise<Buffer | null>;
  close(): Promise<void>;
};

/**
 * The blocks of a chain as JSON in one file, so that serving one is a read; generated once per folder. All of them count
 * as accepted on L1. Blocks above the prepared head are generated on request.
 */
export async function openPrepared(dir: string, chain: ScriptedChain, ledger: Ledger): Promise<Prepared> {
  const head = chain.head();
  // The hash of block 1 depends on everything but the length. A file of another program may have other hashes.
  const identity = sha256(`${chain.block(Math.min(head, 1)).hash}:${head}`)
    .toString('hex')
    .slice(0, 24);
  const dataFile = join(dir, `${identity}.blocks`);
  const indexFile = join(dir, `${identity}.index.json`);
  mkdirSync(dir, { recursive: true });
  chain.setL1(head);
  const index =
    readIndex(indexFile, identity) ?? (await generate(dataFile, indexFile, identity, ledger, head));
  for (const [height, hash] of index.hashes.entries()) chain.source.hashes.keep({ fork: 0, height }, hash);
  const file = await open(dataFile, 'r');
  return {
    truth: index.truth,
    async read(height) {
      const start = index.offsets[height];
      const end = index.offsets[height + 1];
      if (start === undefined || end === undefined) return null;
      const buffer = Buffer.allocUnsafe(end - start);
      await file.read(buffer, 0, buffer.length, start);
      return buffer;
    },
    close: () => file.close(),
  };
}

const params = z.union([
  z.object({ block_id: blockId }),
  z.tuple([blockId]).transform(([block_id]) => ({ block_id })),
]);

/** Serves prepared blocks from their file, and everything else from `run`. */
export function servePrepared(prepared: Prepared, ledger: Ledger, run: RunCall): RunCall {
  return async (call) => {
    const asked = params.safeParse(call.params);
    const isBlock = call.method === 'starknet_getBlockWithReceipts' && asked.success;
    if (!isBlock || asked.data.block_id === 'pre_confirmed') return await run(call);
    return (await prepared.read(heightOf(ledger, asked.data.block_id))) ?? (await run(call));
  };
}

type Index = z.infer<typeof indexSchema>;

function readIndex(file: string, identity: string): Index | null {
  try {
    const parsed = indexSchema.safeParse(JSON.parse(readFileSync(file, 'utf8')));
    return parsed.success && parsed.data.identity === identity ? parsed.data : null;
  } catch {
    return null;
  }
}

async function generate(
  dataFile: string,
  indexFile: string,
  identity: string,
  ledger: Ledger,
  head: number,
): Promise<Index> {
  const truth = emptyTruth(0);
  const offsets = [0];
  const hashes: string[] = [];
  const file = await open(dataFile, 'w');
  let parts: Buffer[] = [];
  let size = 0;
  let end = 0;
  const flush = async () => {
    await file.appendFile(Buffer.concat(parts));
    parts = [];
    size = 0;
  };
  for (let height = 0; height <= head; height++) {
    const block = ledger.at(height);
    if (block === null) throw new RangeError(`no block at height ${height}`);
    countBlock(truth, ledger, height);
    const json = Buffer.from(JSON.stringify(blockWithReceipts({ block, status: 'ACCEPTED_ON_L1' })));
    parts.push(json);
    size += json.length;
    end += json.length;
    offsets.push(end);
    hashes.push(block.hash);
    if (size > 8 * 1024 * 1024) await flush();
  }
  await flush();
  await file.close();
  const index: Index = { identity, offsets, hashes, truth };
  // Written last: without an index the blocks are generated again.
  writeFileSync(`${indexFile}.next`, JSON.stringify(index));
  renameSync(`${indexFile}.next`, indexFile);
  return index;
}
