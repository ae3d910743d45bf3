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

/** The receiver of the README, as it stands there, in a process of its own. */

const SECRET = 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw';
const unhurried = { timeout: 60_000, interval: 50 };
const folder = mkdtempSync(join(tmpdir(), 'tds-receiver-'));
/** In the place of a port, which somebody else could take in between. */
const socketPath = join(folder, 'socket');
const agent = new Agent({ connect: { socketPath } });
let child: ChildProcess;
let wrote = '';

beforeAll(async () => {
  const [, code] =
    /^## Receive webhooks$[^]*?```js\n([^]*?)```/m.exec(readFileSync('README.md', 'utf8')) ?? [];
  writeFileSync(join(folder, 'receiver.mjs'), code ?? '');
  symlinkSync(resolve('schemas'), join(folder, 'schemas'));
  child = spawn(process.execPath, [join(folder, 'receiver.mjs')], {
    env: { ...process.env, WEBHOOK_SECRET: SECRET, PORT: socketPath },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  child.stdout?.on('data', (chunk: Buffer) => (wrote += chunk.toString()));
  await vi.waitFor(() => answerTo(), unhurried);
}, unhurried.timeout);
afterAll(async () => {
  await agent.close();
  child.kill();
  if (child.exitCode === null) await once(child, 'exit');
  rmSync(folder, { recursive: true });
});

/** The status that a request is answered with; a GET where nothing is sent. */
async function answerTo(sent?: { body: string; headers: Record<string, string> }): Promise<number> {
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

it('takes a delivery', async () => {
  expect(await answerTo({ body, headers: headersAt(seconds()) })).toBe(204);
  await vi.waitFor(() => expect(wrote).toContain(example.data.token_address), unhurried);
  expect(wrote).toContain('0193d2c1-6f6e-7c4e-9c5b-0242ac120002 price.threshold');
});

it.each([
  ['one that was changed', () => ({ body: body.replace('0.125', '0.126'), headers: headersAt(seconds()) })],
  ['one that is old', () => ({ body, headers: headersAt(seconds() - 1000) })],
  [
    'one whose time was taken off',
    () => {
      const { 'X-Vendor-Signature': own = '' } = headersAt(seconds());
      return { body, headers: { 'X-Vendor-Signature': own } };
    },
  ],
  ['what is not signed', () => ({ body, headers: {} })],
])('refuses %s', async (_what, sent) => {
  const before = wrote;
  expect(await answerTo(sent())).toBe(400);
  expect(wrote).toBe(before);
});
