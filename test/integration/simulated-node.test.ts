import { Registry } from 'prom-client';
import { afterAll, beforeAll, expect, test } from 'vitest';

import { createSimulatedNode, type SimulatedNode } from '../support/starknet/node.ts';
import { tokens } from '../../infra/embedded/starknet/tokens.ts';
import { classify } from '../../pipeline/ingest/contracts/classify.ts';
import { createNodeMetrics } from '../../pipeline/node/metrics.ts';
import { createNode } from '../../pipeline/node/node.ts';
import type { Node } from '../../pipeline/node/types.ts';
import { decodeBlock, tokenContracts } from '../../schemas/decode/index.ts';
import { toFelt } from '../../schemas/felt.ts';
import type { Felt } from '../../schemas/felt.ts';
import type { ContractsMap } from '../../schemas/messages/chain-blocks.ts';

const HEAD = 600;
let simulated: SimulatedNode;
let node: Node;
const contracts: Record<Felt, ContractsMap[Felt]> = {};

beforeAll(async () => {
  simulated = await createSimulatedNode({
    manual: true,
    initialHead: 20,
    malformed: 0.05,
    reorgs: { every: 30, maxDepth: 8 },
  });
  while ((simulated.chain?.head() ?? HEAD) < HEAD) simulated.chain?.tick();
  node = createNode({
    url: simulated.url,
    timeoutMs: 5000,
    maxConcurrent: 4,
    metrics: createNodeMetrics(new Registry()),
  });
});

afterAll(async () => {
  await node.close();
  await simulated.close();
});

test('classify gives the intended standard of every simulated contract', async () => {
  const at = await node.blockHashAndNumber();
  if (at === null) throw new Error('no head');
  for (const token of tokens) {
    const { standard } = await classify(node, toFelt(token.address), at, (_hash, fetch) => fetch());
    expect([token.key, standard]).toEqual([token.key, token.standard]);
    contracts[toFelt(token.address)] = { standard, class_hash: null };
  }
});

test('decoded transfers equal the simulated ones', async () => {
  for (let height = 0; height <= HEAD; height++) {
    const { body } = await node.getBlockWithReceipts(height);
    for (const contract of tokenContracts(body)) expect(contracts).toHaveProperty([contract]);
    const { transfers, malformed } = decodeBlock(body, contracts);
    const truth = simulated.transfersAt(height).map((meant) => ({
      token: toFelt(meant.token),
      kind: meant.standard,
      from: toFelt(meant.from),
      to: toFelt(meant.to),
      amount: meant.amount,
      tokenId: meant.tokenId,
      position: meant.position,
      item: meant.item,
      txIndex: meant.txIndex,
      eventInTx: meant.eventIndex,
      txHash: toFelt(BigInt(meant.txHash)),
      isFee: meant.isFee,
      executionStatus: meant.reverted ? 'REVERTED' : 'SUCCEEDED',
      fee: meant.fee,
      feeToken: toFelt(meant.feeToken),
    }));
    expect(transfers).toEqual(truth);
    const meantMalformed = simulated.malformedAt(height).map(({ position }) => position);
    expect(malformed.map(({ position }) => position)).toEqual(meantMalformed);
  }
});
