import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { z } from 'zod';

import { verifyProof } from '../../client/src/proof.ts';
import { freePort } from '../../infra/embedded/ports.ts';
import { proofAnswer } from '../../schemas/api/proofs.ts';
import { createSimulatedNode } from '../support/starknet/node.ts';
import type { SimulatedNode } from '../support/starknet/node.ts';
import { isolated } from '../support/isolation.ts';
import type { Isolated } from '../support/isolation.ts';
import { allTransfers, eventually, servedTransfer, startService } from '../support/service.ts';
import type { RunningService } from '../support/service.ts';
import { apply, createHeld, keyOf, readLines } from '../support/stream-client.ts';
import { hex, servedRow, trueRow } from '../support/truth.ts';

const progress = z.object({
  chunks: z.array(
    z.object({
      name: z.string(),
      range: z.array(z.number().nullable()),
      latest_block: z.number(),
      transfers: z.number(),
      percent: z.number().nullable(),
    }),
  ),
  totals: z.object({ transfers: z.number(), latest_block_overall: z.number() }),
});

describe('the whole service on a simulated chain', () => {
  let own: Isolated;
  let node: SimulatedNode;
  let service: RunningService;
  let dataDir: string;
  let settings: Record<string, string>;

  const head = (): number =>
    z.object({ head: z.number() }).parse(node.control({ command: 'clearFaults' })).head;

  /** Every height serves exactly the node's transfers, and the totals agree. */
  const expectEqualToChain = async (): Promise<void> => {
    const top = head();
    let total = 0;
    for (let height = 0; height <= top; height += 1) {
      const truth = node.transfersAt(height);
      total += truth.length;
      await eventually(async () => {
        const { count, rows } = await allTransfers(service, `block=${height}`);
        expect(rows.map(servedRow).toReversed()).toEqual(truth.map(trueRow));
        expect(count).toBe(truth.length);
      });
    }
    await eventually(async () => {
      const { totals } = progress.parse((await service.get('/api/indexer/progress/')).json);
      expect(totals).toEqual({ transfers: total, latest_block_overall: top });
    });
    await catchUp();
    const streamed = [...held.transfers.keys()].map((key) => rows.get(key));
    expect(streamed).toEqual(
      Array.from({ length: top + 1 }, (_, height) => node.transfersAt(height).map(trueRow)).flat(),
    );
    expect(held.newest.block).toBe(top);
    for (const height of [0, 30, top - 2, top]) await expectProof(height);
  };

  /** The last transfer of a block can be proved. */
  const expectProof = async (height: number): Promise<void> => {
    const [row] = (await allTransfers(service, `block=${height}`)).rows;
    if (row === undefined) return;
    const { json } = await service.get(
      `/api/transfers/proof/?txhash=${row.txhash}&event_index=${row.event_index}`,
    );
    const proof = proofAnswer.parse(json);
    expect(proof.transfer).toMatchObject(row);
    const { number, hash } = await verifyProof(proof);
    expect([number, BigInt(hash)]).toEqual([height, BigInt(node.ledger.at(height)?.hash ?? 0)]);
  };

  /** A client of the stream for the whole time, with what it holds. */
  const held = createHeld();
  const rows = new Map<string, string>();
  let cursor = '0';
  const catchUp = async (): Promise<void> => {
    for (let isNew = true; isNew;) {
      isNew = false;
      const url = `${service.baseUrl}/api/stream/transfers/?wait=0&limit=700&from=${cursor}`;
      const answer = await fetch(url, { headers: { 'api-key': service.demo.api_key } });
      expect(answer.status).toBe(200);
      for await (const message of readLines(answer)) {
        apply(held, message);
        if (message.type === 'transfer')
          rows.set(keyOf(message.data), servedRow(servedTransfer.parse(message.data)));
        ({ cursor } = message);
        isNew = true;
      }
    }
  };

  beforeAll(async () => {
    own = await isolated();
    dataDir = mkdtempSync(join(tmpdir(), 'tds-e2e-'));
    node = await createSimulatedNode({
      seed: 'e2e',
      manual: true,
      initialHead: 60,
      l1: { lag: 30, step: 5 },
      malformed: 0.02,
    });
    settings = {
      ...own.env,
      STARKNET_RPC_URL: node.url,
      INDEX_FROM: '0',
      BACKFILL_CHUNK_BLOCKS: '10',
      PORT: String(await freePort()),
    };
    service = await startService(dataDir, settings);
  });
  afterAll(async () => {
    await service?.stop();
    await node?.close();
    await own?.drop();
    rmSync(dataDir, { recursive: true, force: true });
  });

  test('serves every transfer of the chain, from backfill and live, and no other', async () => {
    await expectEqualToChain();
    const { chunks } = progress.parse((await service.get('/api/indexer/progress/')).json);
    expect(chunks.length).toBeGreaterThan(3);
    // A range of one height has no percentage.
    const finished = chunks.filter(({ name, range: [start, end] }) => name !== 'live' && start !== end);
    expect(finished.map(({ percent }) => percent)).toEqual(finished.map(() => 1));
    expect(chunks.find(({ name }) => name === 'live')?.percent).toBeNull();
  });

  test('serves the feeds of an account and of a token, newest first', async () => {
    const all = Array.from({ length: head() + 1 }, (_, height) => node.transfersAt(height)).flat();
    const newestFirst = all.toSorted(
      (a, b) => b.block - a.block || b.position - a.position || b.item - a.item,
    );
    const someone = all.at(-1)!.from;
    const mine = newestFirst.filter(({ from, to }) => from === someone || to === someone);
    const feed = await allTransfers(service, `account=${hex(someone)}`);
    expect(feed.rows.map(servedRow)).toEqual(mine.map(trueRow));
    expect(feed.count).toBe(mine.length);
    const token = all.at(-1)!.token;
    const its = newestFirst.filter((row) => row.token === token);
    const tokenFeed = await allTransfers(service, `token=0x${token.toString(16)}`);
    expect(tokenFeed.rows.map(servedRow)).toEqual(its.map(trueRow));
    expect(tokenFeed.count).toBe(its.length);
  });

  test('serves the new fork after a reorg', async () => {
    node.control({ command: 'reorg', depth: 7, length: 5, share: 0.5, events: 'fewer' });
    node.control({ command: 'advance', blocks: 4 });
    await expectEqualToChain();
  });

  test('restarts killed roles without losing or duplicating rows', async () => {
    const { ingest = 0, project = 0, api = 0 } = service.pids();
    for (const pid of [ingest, project, api]) process.kill(pid, 'SIGKILL');
    node.control({ command: 'advance', blocks: 10 });
    await eventually(async () => expect((await service.get('/healthz')).status).toBe(200));
    await expectEqualToChain();
  });

  test('resumes after a restart and detects a reorg that happened while it was stopped', async () => {
    expect(await service.stop('SIGTERM')).toBeLessThan(10_000);
    node.control({ command: 'reorg', depth: 4, length: 9, events: 'more' });
    const { api_key } = service.demo;
    service = await startService(dataDir, settings);
    expect(service.demo.api_key).toBe(api_key);
    await expectEqualToChain();
  });
});
