import { cpSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { expect, test } from 'vitest';

import { freePort } from '../../../infra/embedded/ports.ts';
import { allTransfers, eventually, startService } from '../../support/service.ts';
import type { RunningService } from '../../support/service.ts';
import { createSimulatedNode } from '../../support/starknet/node.ts';
import { tds } from '../../support/tds.ts';
import { servedRow, trueRow } from '../../support/truth.ts';

/** An embedded start whose Kafka has lost its newest messages, as after a power cut without flushes. */
test('starts after Kafka has lost acknowledged messages, and verify --repair brings the blocks back', async () => {
  const dataDir = mkdtempSync(join(tmpdir(), 'tds-lost-log-'));
  const node = await createSimulatedNode({ seed: 'lost log', manual: true, initialHead: 40 });
  const settings = { STARKNET_RPC_URL: node.url, INDEX_FROM: '0', PORT: String(await freePort()) };
  const kafka = join(dataDir, 'kafka');
  const kept = join(dataDir, 'kafka-kept');
  const start = (): Promise<RunningService> => startService(dataDir, settings, { withinMs: 240_000 });
  let stop = async (): Promise<number> => 0;
  const expectChain = async (service: RunningService, head: number): Promise<void> => {
    for (let height = head; height >= 0; height -= 1) {
      await eventually(async () => {
        const { rows } = await allTransfers(service, `block=${height}`);
        expect(rows.map(servedRow).toReversed()).toEqual(node.transfersAt(height).map(trueRow));
      });
    }
  };
  try {
    const first = await start();
    stop = () => first.stop();
    await expectChain(first, 40);
    await first.stop();
    cpSync(kafka, kept, { recursive: true });
    const second = await start();
    stop = () => second.stop();
    node.control({ command: 'advance', blocks: 30 });
    await expectChain(second, 70);
    await second.stop();
    rmSync(kafka, { recursive: true });
    cpSync(kept, kafka, { recursive: true });

    const third = await start();
    stop = () => third.stop();
    expect(third.printed()).toMatch(/transfers: build 2 /);
    // All read models are rebuilt from one reading of the log.
    expect(third.printed().match(/^Swapped; /gm)).toHaveLength(1);
    node.control({ command: 'advance', blocks: 5 });
    await eventually(async () => {
      expect((await allTransfers(third, 'block=75')).rows.length).toBeGreaterThan(0);
    });
    // New blocks follow, but those that the log has lost are not published by themselves.
    const found = await tds(third.settings(), 'verify');
    expect(found.stdout).toMatch(/^log: /m);
    expect(found.code).toBe(1);
    const { code, stdout } = await tds(third.settings(), 'verify', '--repair');
    expect(code, stdout).toBe(0);
    await expectChain(third, 75);
  } finally {
    await stop();
    await node.close();
    rmSync(dataDir, { recursive: true, force: true });
  }
});
