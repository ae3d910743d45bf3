import { pino } from 'pino';
import { expect, test } from 'vitest';

import { systemClock } from '../../../../../infra/clock.ts';
import { createSealing } from '../../../../../infra/sealing.ts';
import { secretOf } from '../../../../../projections/webhooks/queries.ts';
import { createSend } from '../../../../../pipeline/dispatch/send/attempt.ts';
import type { Claim } from '../../../../../pipeline/dispatch/send/claims.ts';
import type { Egress } from '../../../../../pipeline/egress/egress.ts';

test("a signature has the time of the machine's clock, also after it was corrected or the machine was suspended", async () => {
  const sealing = createSealing(Buffer.alloc(32));
  const sent: Readonly<Record<string, string>>[] = [];
  const send = createSend({
    egress: {
      request: async (_: string, { headers }: { headers: Record<string, string> }) => {
        sent.push(headers);
        return { status: 200, headers: {}, body: Buffer.alloc(0) };
      },
    } as unknown as Egress,
    sealing,
    clock: { ...systemClock, now: () => 1_000_000, wallTime: () => 1_700_000_000_000 },
    log: pino({ level: 'silent' }),
    timeoutMs: 1000,
  });
  const claim = {
    id: 'd',
    webhookId: 1,
    url: 'https://example.com/',
    event: 'ping',
    body: '{}',
    attempts: 0,
  };
  const secret = sealing.seal(`whsec_${Buffer.alloc(32).toString('base64')}`, secretOf(1));
  const secrets = { userId: 1, secret, previous: null, previousUntil: null };
  const { responseCode } = await send({ ...claim, secrets } as Claim, new AbortController().signal);
  expect(responseCode).toBe(200);
  expect(sent[0]!['webhook-timestamp']).toBe('1700000000');
});
