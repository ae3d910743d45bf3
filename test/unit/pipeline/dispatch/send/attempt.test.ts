import { pino } from 'pino';
import { expect, test } from 'vitest';

import { systemClock } from '../../../../../infra/clock.ts';
import { createSealing } from '../../../../../infra/sealing.ts';
import { secretOf } from '../../../../../projections/webhooks/queries.ts';
import { createSend } from '../../../../../pipeline/dispatch/send/attempt.ts';
import type { DeliveryClaim } from '../../../../../pipeline/dispatch/send/claims.ts';
import type { Egress } from '../../../../../pipeline/egress/egress.ts';

/** Sends one delivery; returns its headers. */
async function sendWith(
  secrets: Omit<DeliveryClaim['secrets'], 'userId'>,
): Promise<Readonly<Record<string, string>>> {
  const sent: Readonly<Record<string, string>>[] = [];
  const send = createSend({
    egress: {
      request: async (_: string, { headers }: { headers: Record<string, string> }) => {
        sent.push(headers);
        return { status: 200, headers: {}, body: Buffer.alloc(0) };
      },
    } as unknown as Egress,
    sealing,
    clock: { ...systemClock, now: () => 1_000_000, wallTime: () => NOW },
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
  const all = { ...secrets, userId: 1 };
  const { responseCode } = await send(
    { ...claim, secrets: all } as DeliveryClaim,
    new AbortController().signal,
  );
  expect(responseCode).toBe(200);
  return sent[0]!;
}

test('secrets that cannot be read are logged once a minute, whichever delivery needs them', async () => {
  let now = 5;
  const lines: string[] = [];
  const send = createSend({
    egress: {} as Egress,
    sealing,
    clock: { ...systemClock, now: () => now },
    log: pino({ level: 'error' }, { write: (line) => void lines.push(line) }),
    timeoutMs: 1000,
  });
  const secret = sealedSecret(createSealing(Buffer.alloc(32, 1)));
  const secrets = { userId: 1, secret, previous: null, previousUntil: null };
  const claim = { id: 'd', url: 'https://example.com/', event: 'ping', body: '{}', attempts: 0, secrets };
  for (const at of [5, 6, 60_004, 60_005, 60_006]) {
    now = at;
    for (const webhookId of [1, 2]) {
      const { error } = await send({ ...claim, webhookId } as DeliveryClaim, new AbortController().signal);
      expect(error).toBe('the delivery could not be sent');
    }
  }
  expect(lines).toHaveLength(2);
});

const NOW = 1_700_000_000_000;
const sealing = createSealing(Buffer.alloc(32));
const sealedSecret = (by = sealing): string =>
  by.seal(`whsec_${Buffer.alloc(32).toString('base64')}`, secretOf(1));

test("a signature has the time of the machine's clock, also after it was corrected or the machine was suspended", async () => {
  const headers = await sendWith({ secret: sealedSecret(), previous: null, previousUntil: null });
  expect(headers['webhook-timestamp']).toBe('1700000000');
});

test('a previous secret that was sealed with a lost key is left out', async () => {
  const secret = sealedSecret();
  const alone = await sendWith({ secret, previous: null, previousUntil: null });
  const lost = sealedSecret(createSealing(Buffer.alloc(32, 1)));
  expect(await sendWith({ secret, previous: lost, previousUntil: NOW + 1 })).toEqual(alone);
  const both = await sendWith({ secret, previous: sealedSecret(), previousUntil: NOW + 1 });
  expect(both['webhook-signature']?.split(' ')).toHaveLength(2);
});
