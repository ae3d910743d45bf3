import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';

import { Agent } from 'undici';
import { afterAll, beforeAll, expect, it, vi } from 'vitest';

import { eventCatalogue } from '../../../../schemas/webhooks/events.ts';
import { signatureHeaders } from '../../../../schemas/webhooks/signature.ts';

/** Runs the receiver printed in docs/webhooks.md as a process. */

const SECRET = 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw';
const slowMachine = { timeout: 60_000, interval: 50 };
const folder = mkdtempSync(join(tmpdir(), 'tds-receiver-'));
/** A socket instead of a port, which another process could take in between. */
const socketPath = join(folder, 'socket');
const agent = new Agent({ connect: { socketPath } });
let child: ChildProcess;
let output = '';
let errors = '';

beforeAll(async () => {
  const [, code] =
    /^# Receive webhooks$[^]*?```js\n([^]*?)```/m.exec(readFileSync('docs/webhooks.md', 'utf8')) ?? [];
  writeFileSync(join(folder, 'receiver.mjs'), code ?? '');
  symlinkSync(resolve('schemas'), join(folder, 'schemas'));
  child = spawn(process.execPath, [join(folder, 'receiver.mjs')], {
    env: { ...process.env, WEBHOOK_SECRET: SECRET, RECEIVER_PORT: socketPath },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  child.stdout?.on('data', (chunk: Buffer) => (output += chunk.toString()));
  child.stderr?.on('data', (chunk: Buffer) => (errors += chunk.toString()));
  await vi.waitFor(() => statusOf(), slowMachine);
}, slowMachine.timeout);
afterAll(async () => {
  await agent.close();
  child.kill();
  if (child.exitCode === null) await once(child, 'exit');
  rmSync(folder, { recursive: true });
});

/** The status of the answer to a delivery; to a GET without one. */
async function statusOf(sent?: { body: string; headers: Record<string, string> }): Promise<number> {
  const { statusCode, body } = await agent.request({
    origin: 'http://receiver',
    path: '/',
    method: sent === undefined ? 'GET' : 'POST',
    ...sent,
  });
  await body.dump();
  return statusCode;
}

const example = eventCatalogue['price.threshold'].example;
const body = JSON.stringify(example);
const headersAt = (timestampSeconds: number): Record<string, string> =>
  signatureHeaders({
    body,
    secret: SECRET,
    deliveryId: '0193d2c1-6f6e-7c4e-9c5b-0242ac120002',
    event: example.event,
    attempt: 1,
    timestampSeconds,
  });
const seconds = (): number => Math.floor(Date.now() / 1000);

it('accepts a signed delivery', async () => {
  expect(await statusOf({ body, headers: headersAt(seconds()) })).toBe(204);
  await vi.waitFor(() => expect(output).toContain(example.data.token_address), slowMachine);
  expect(output).toContain('0193d2c1-6f6e-7c4e-9c5b-0242ac120002 price.threshold');
});

it.each([
  [
    'a delivery with a changed body',
    () => ({ body: body.replace('0.125', '0.126'), headers: headersAt(seconds()) }),
  ],
  ['a delivery with an old timestamp', () => ({ body, headers: headersAt(seconds() - 1000) })],
  [
    'a delivery whose timestamp was removed',
    () => {
      const { 'X-Vendor-Signature': own = '' } = headersAt(seconds());
      return { body, headers: { 'X-Vendor-Signature': own } };
    },
  ],
  ['an unsigned delivery', () => ({ body, headers: {} })],
])('rejects and logs %s', async (_what, sent) => {
  const [before, errorsBefore] = [output, errors];
  expect(await statusOf(sent())).toBe(400);
  expect(output).toBe(before);
  await vi.waitFor(
    () => expect(errors.slice(errorsBefore.length)).toContain('delivery rejected: '),
    slowMachine,
  );
});
