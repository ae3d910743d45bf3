import { mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { join } from 'node:path';

import { z } from 'zod';

import type { SimulatedChain } from './chain.ts';
import { sha256 } from './hash.ts';
import type { Ledger } from './ledger.ts';
import { countBlock, emptyTruth, type Truth } from './oracle.ts';
import { blockWithReceipts } from './rpc.ts';

const counts = z.record(z.string(), z.number());
const indexSchema = z.object({
  identity: z.string(),
  offsets: z.array(z.number()),
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
 * A chain as ready answers in one file, so that serving costs one read. All of it counts as accepted on L1. Blocks above
 * the prepared head are made as always. The same chain is found again in the same folder.
 */
export async function openPrepared(dir: string, chain: SimulatedChain, ledger: Ledger): Promise<Prepared> {
  const head = chain.head();
  const first = ledger.at(Math.min(head, 1));
  // A block's hash covers seed and density; its timestamp the rest that shows in the JSON.
  const identity = sha256(`${chain.block(head).hash}:${String(first?.header['timestamp'])}:${head}`)
    .toString('hex')
    .slice(0, 24);
  const dataFile = join(dir, `${identity}.blocks`);
  const indexFile = join(dir, `${identity}.index.json`);
  mkdirSync(dir, { recursive: true });
  chain.setL1(head);
  const index = readIndex(indexFile, identity) ?? (await make(dataFile, indexFile, identity, ledger, head));
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

type Index = z.infer<typeof indexSchema>;

function readIndex(file: string, identity: string): Index | null {
  try {
    const parsed = indexSchema.safeParse(JSON.parse(readFileSync(file, 'utf8')));
    return parsed.success && parsed.data.identity === identity ? parsed.data : null;
  } catch {
    return null;
  }
}

async function make(
  dataFile: string,
  indexFile: string,
  identity: string,
  ledger: Ledger,
  head: number,
): Promise<Index> {
  const truth = emptyTruth(0);
  const offsets = [0];
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
    if (block === null) throw new RangeError(`no block ${height}`);
    countBlock(truth, ledger, height);
    const json = Buffer.from(JSON.stringify(blockWithReceipts({ block, status: 'ACCEPTED_ON_L1' }, '0.10')));
    parts.push(json);
    size += json.length;
    end += json.length;
    offsets.push(end);
    if (size > 8 * 1024 * 1024) await flush();
  }
  await flush();
  await file.close();
  const index: Index = { identity, offsets, truth };
  // The index comes last: without it, what lies there is made again.
  writeFileSync(`${indexFile}.next`, JSON.stringify(index));
  renameSync(`${indexFile}.next`, indexFile);
  return index;
}
