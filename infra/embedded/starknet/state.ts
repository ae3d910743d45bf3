import { mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';

import { z } from 'zod';

import { AppError } from '../../../schemas/errors.ts';

const height = z.int().min(0);

const stateSchema = z.object({
  /** What makes another chain of it when it changes. */
  identity: z.string(),
  genesisTime: z.int(),
  head: height,
  /** The head at the very first start. */
  firstHead: height,
  l1: height,
  fork: height,
  /** Seconds added to the schedule from a height on: a chain that stood still does not fall behind the clock. */
  offsets: z.array(z.object({ from: height, seconds: z.number() })),
  forks: z.array(
    z.object({
      id: height,
      parent: height,
      from: height,
      depth: height,
      share: z.number(),
      events: z.enum(['fewer', 'same', 'more']),
    }),
  ),
  /** Where the head of a fork was when another took over. */
  forkHeads: z.array(z.tuple([height, height])),
});

export type ChainState = z.infer<typeof stateSchema>;

/** Null when there is no file yet. */
export function readState(file: string, identity: string): ChainState | null {
  let text: string;
  try {
    text = readFileSync(file, 'utf8');
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return null;
    throw error;
  }
  const parsed = stateSchema.safeParse(JSON.parse(text));
  if (!parsed.success) throw new AppError('INVALID', `${file} is no state of a simulated chain`);
  if (parsed.data.identity !== identity) {
    const message = `${file} belongs to another chain (${parsed.data.identity}, wanted ${identity}): use another folder or the same seed`;
    throw new AppError('CONFLICT', message);
  }
  return parsed.data;
}

/** Written before a change is served, so that a chain never says two different things under one hash. */
export function writeState(file: string, state: ChainState): void {
  mkdirSync(dirname(file), { recursive: true });
  const next = `${file}.next`;
  writeFileSync(next, JSON.stringify(state));
  renameSync(next, file);
}
