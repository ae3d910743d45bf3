import { Registry } from 'prom-client';
import { expect, test } from 'vitest';

import { systemClock } from '../../../../infra/clock.ts';
import type { Publication } from '../../../../infra/kafka/publisher.ts';
import { createIngestMetrics } from '../../../../pipeline/ingest/metrics.ts';
import type { Lease } from '../../../../pipeline/ingest/ports.ts';
import {
  publishAccepted,
  publishReverted,
  publishStatus,
  statusStamp,
} from '../../../../pipeline/ingest/publish.ts';
import { AppError } from '../../../../schemas/errors.ts';
import { ZERO_FELT, toFelt } from '../../../../schemas/felt.ts';
import { topics } from '../../../../schemas/topics.ts';
import { COIN, accepted, makeBlock, transferEvent } from '../../../support/chain-messages.ts';

const block = makeBlock({ height: 3, transactions: [] });
const chunk = { name: 'live', start: 0, end: null, cursor: 3, finalHeight: -1, finalHash: null };
const lease: Lease = {
  name: 'live',
  epoch: 1,
  chunk: {
    ...chunk,
    firstParent: null,
    finished: false,
    opened: true,
    plan: { to: -1, facts: {} },
    updatedAt: 0,
    lease: null,
  },
  seq: { forAccept: async () => 1, forRevert: async () => 2, exceed() {} },
  signal: new AbortController().signal,
  assertValid() {},
  abort() {},
  async release() {},
};

function depsWith(publications: readonly Publication[]) {
  const metrics = createIngestMetrics(new Registry());
  const publisher = { publish: async () => [...publications] };
  return {
    clock: systemClock,
    metrics,
    publisher,
    checks: { published: async () => {}, reverted: async () => {} },
  };
}

/** With a transfer whose low half of the amount does not fit into 128 bits. */
function malformedBlock() {
  const event = { ...transferEvent(COIN, ZERO_FELT, toFelt(1n), 1n), data: [toFelt(2n ** 128n), ZERO_FELT] };
  return accepted(makeBlock({ height: 4, transactions: [{ events: [event] }] }), 1);
}

test.each<[string, Publication[]]>([
  ['an offset that is not a number', [{ partition: 0, offset: Number.NaN }]],
  ['a negative offset', [{ partition: 0, offset: -1 }]],
  ['no offset', []],
])('publishing rejects with a retryable error if Kafka returns %s', async (_, publications) => {
  const deps = depsWith(publications);
  const unavailable = { code: 'STORE_UNAVAILABLE', retryable: true };
  await expect(publishAccepted(deps, lease, [{ block, contracts: {} }], () => 'new')).rejects.toMatchObject(
    unavailable,
  );
  await expect(publishReverted(deps, lease, [{ body: block, maps: [{}] }], 2)).rejects.toMatchObject(
    unavailable,
  );
  const message = { type: 'l1.accepted', v: 1, observed_at: 0, height: 3 } as const;
  await expect(publishStatus(deps, [message])).rejects.toMatchObject(unavailable);
});

test('states the time of the clock, also after the machine was suspended', async () => {
  const wallTime = 1_700_000_000_000;
  const sent: unknown[] = [];
  const deps = {
    ...depsWith([]),
    clock: { ...systemClock, now: () => wallTime - 7_200_000, wallTime: () => wallTime },
    publisher: {
      publish: async (_: unknown, messages: readonly { readonly value: unknown }[]) => {
        sent.push(...messages.map(({ value }) => value));
        return messages.map((_message, offset) => ({ partition: 0, offset }));
      },
    },
  };
  const { block: malformed, contracts } = malformedBlock();
  await publishAccepted(deps, lease, [{ block: malformed, contracts }], () => 'new');
  await publishReverted(deps, lease, [{ body: malformed, maps: [contracts] }], 2);
  expect(sent).toContainEqual(
    expect.objectContaining({ type: 'event.quarantined', quarantined_at: wallTime }),
  );
  expect(sent).toContainEqual(
    expect.objectContaining({ type: 'quarantine.resolved', resolved_at: wallTime }),
  );
  expect(statusStamp(deps.clock)).toEqual({ v: 1, observed_at: wallTime });
});

test('publishes no quarantined event once the lease may have expired', async () => {
  const sent: string[] = [];
  let isExpired = false;
  const deps = {
    ...depsWith([]),
    publisher: {
      publish: async ({ name }: { readonly name: string }, messages: readonly unknown[]) => {
        sent.push(name);
        isExpired = true;
        return messages.map((_message, offset) => ({ partition: 0, offset }));
      },
    },
  };
  const expiring: Lease = {
    ...lease,
    assertValid() {
      if (isExpired) throw new AppError('LEASE_LOST', 'the lease has expired');
    },
  };
  const { block: malformed, contracts } = malformedBlock();
  await expect(
    publishAccepted(deps, expiring, [{ block: malformed, contracts }], () => 'new'),
  ).rejects.toMatchObject({ code: 'LEASE_LOST' });
  expect(sent).toEqual([topics.chainBlocks.name]);
});

test('publishing resolves if every message has an offset', async () => {
  const deps = depsWith([{ partition: 0, offset: 0 }]);
  await publishAccepted(deps, lease, [{ block, contracts: {} }], () => 'new');
});
