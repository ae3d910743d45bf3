import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

import { z } from 'zod';

import { createClient } from './client.ts';

const program = fileURLToPath(new URL('../support/starknet/server.ts', import.meta.url));

/** Token contracts of a mixed chain besides those of the demonstration chain. */
export const COPIED_TOKENS = 300;

const counts = z.record(z.string(), z.number());
/** The simulated node's count of the transfers that it intended, independent of the decoder. */
const truth = z.object({
  blocks: z.number(),
  transactions: z.number(),
  events: z.number(),
  transfers: z.number(),
  malformed: z.number(),
  byToken: counts,
  byAccount: counts,
});
export type Truth = z.infer<typeof truth>;

export interface ChainProcess {
  readonly url: string;
  readonly pid: number;
  /** Makes blocks; resolves when the node serves them. */
  advance(blocks: number): Promise<{ head: number }>;
  /** Serves the chain up to a lower head, as a lagging node does; null: all of it. */
  serveUpTo(height: number | null): Promise<void>;
  /** Counts of all blocks, or of a range. */
  truth(range?: { from: number; to: number }): Promise<Truth>;
  stop(): Promise<void>;
}

/** The simulated node as a separate process; `advance` is the only source of new blocks. */
export async function startChain(options: {
  head: number;
  perBlock: number;
  /** Some hundred token contracts, a third of them NFTs with metadata, and malformed events, as on a real chain. */
  mixed?: boolean;
  /** Blocks up to `head` are generated beforehand into this folder, so that serving one is only a read. */
  preparedDir?: string;
}): Promise<ChainProcess> {
  const { head, perBlock, mixed = false, preparedDir } = options;
  const child = spawn(
    process.execPath,
    [
      program,
      '--watch-stdin',
      '--seed=bench',
      `--head=${head}`,
      `--transfers=${perBlock}`,
      ...(mixed ? [`--copied-tokens=${COPIED_TOKENS}`, '--malformed=0.01'] : []),
      ...(preparedDir === undefined ? [] : ['--prepared', preparedDir]),
    ],
    // Ctrl-C must reach only the bench, which stops this process.
    { stdio: ['pipe', 'pipe', 'inherit'], detached: true },
  );
  const ended = once(child, 'exit');
  const line = await Promise.race([
    once(createInterface({ input: child.stdout }), 'line').then(([text]) => String(text)),
    ended.then(() => {
      throw new Error('the simulated node exited before it was ready');
    }),
  ]);
  const { url, pid } = z.object({ url: z.string(), pid: z.number() }).parse(JSON.parse(line));
  const control = createClient(url);
  const place = z.object({ head: z.number() });
  const command = async (body: object): Promise<string> => {
    const answered = await control.post('/control', body);
    if (answered.status !== 200)
      throw new Error(`the simulated node answered ${answered.status}: ${answered.body}`);
    return answered.body;
  };
  return {
    url,
    pid,
    advance: async (blocks) => place.parse(JSON.parse(await command({ command: 'advance', blocks }))),
    serveUpTo: async (height) => void (await command({ command: 'setHead', height })),
    truth: (range) =>
      control.read(
        range === undefined ? '/control/stats' : `/control/stats?from=${range.from}&to=${range.to}`,
        truth,
      ),
    async stop() {
      control.close();
      child.kill('SIGTERM');
      await ended;
    },
  };
}
