import { z } from 'zod';

import { tokenTable } from '../../../infra/embedded/starknet/tokens.ts';
import { parseBlockWithReceipts } from '../../../pipeline/node/parse.ts';
import { createBatch } from '../../../projections/engine/run/batch.ts';
import type { Reading } from '../../../projections/engine/run/readings.ts';
import { chainProjections } from '../../../projections/index.ts';
import { chainBlocks, readItem } from '../../../projections/streams.ts';
import { toFelt } from '../../../schemas/felt.ts';
import type { BlockBody, ContractsMap } from '../../../schemas/messages/chain-blocks.ts';
import { COPIED_TOKENS } from '../chain.ts';

/** Work of the service in this process, with a fixed input. */
export interface Part {
  readonly name: string;
  readonly run: () => void;
}

/** The text of the node's answer for each height. */
export async function fetchAnswers(url: string, heights: readonly number[]): Promise<string[]> {
  const ask = async (block_number: number): Promise<string> => {
    const params = { block_id: { block_number } };
    const body = JSON.stringify({
      jsonrpc: '2.0',
      id: 1,
      method: 'starknet_getBlockWithReceipts',
      params,
    });
    const headers = { 'content-type': 'application/json' };
    return await (await fetch(url, { method: 'POST', headers, body })).text();
  };
  return await Promise.all(heights.map(ask));
}

const answer = z.object({ result: z.unknown() });

/** Answers of the node to checked blocks. */
export function blocksOf(answers: readonly string[]): Part & { readonly bodies: () => BlockBody[] } {
  const bodies = (): BlockBody[] =>
    answers.map((text) => {
      const { result } = answer.parse(JSON.parse(text));
      return parseBlockWithReceipts(result, text.length).body;
    });
  return { name: 'answers of the node to checked blocks', bodies, run: () => void bodies() };
}

/** Messages of the log to encoded rows of every table of chain.blocks: parse, decode, project, encode. */
export function rowsOf(bodies: readonly BlockBody[]): Part {
  const contracts: ContractsMap = Object.fromEntries(
    tokenTable(COPIED_TOKENS).list.map(({ address, standard }) => [
      toFelt(address),
      { standard, class_hash: null },
    ]),
  );
  const messages = bodies.map((block, offset) => ({
    topic: chainBlocks.name,
    partition: 0,
    offset,
    key: null,
    value: Buffer.from(
      JSON.stringify({
        type: 'block.accepted',
        v: 1,
        seq: offset + 1,
        cause: 'new',
        chunk: 'bench',
        block,
        contracts: mentioned(contracts, block),
      }),
    ),
    timestamp: 0,
  }));
  const targets = chainProjections.map((projection) => ({
    projection,
    build: { projection: projection.name, version: projection.version, build: 1, names: {} },
  }));
  return {
    name: 'blocks of the log to encoded rows',
    run() {
      const reading: Reading = {
        partition: 0,
        current: true,
        next: 0,
        planned: new Map(targets.map(({ build }) => [build, 0])),
        stored: new Map(),
        halt: null,
      };
      const batch = createBatch(targets);
      for (const message of messages) {
        const item = readItem(chainBlocks, message);
        if ('reason' in item) throw new Error(item.reason);
        batch.add(reading, item);
      }
      if (batch.rows() < bodies.length) throw new Error('no rows');
    },
  };
}

function mentioned(contracts: ContractsMap, { transactions }: BlockBody): ContractsMap {
  const named = new Set(transactions.flatMap(({ events }) => events.map((event) => event.from_address)));
  return Object.fromEntries(
    Object.entries(contracts).filter(([address]) => named.has(toFelt(BigInt(address)))),
  );
}
