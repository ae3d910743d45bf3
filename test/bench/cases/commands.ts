import { createHash, createHmac, randomBytes } from 'node:crypto';

import { z } from 'zod';

import { wanted } from '../case.ts';
import type { BenchCase } from '../case.ts';
import { latency, timed } from '../measure.ts';

const ALONE = 200;
const CALLERS = 16;
const TOGETHER = 800;
/** Maximum size of a wallet's state, in base64. */
const BLOB_BYTES = 49_152;

const session = z.object({ token: z.string() });
const created = z.object({ id: z.number(), key: z.string() });
const keys = z.array(z.object({ id: z.number() }));

export const commands: BenchCase = {
  name: 'commands',
  summary: 'writes: create an API key, store a blob of 64 KiB; from request through the log to answer',
  async run(world, { samples }) {
    const chain = await world.chain({ head: 3, perBlock: 20 });
    const { service } = await world.service('commands', {
      STARKNET_RPC_URL: chain.url,
      INDEX_FROM: '0',
      SYNC_CALLS_PER_MINUTE: '1000000',
      SYNC_BYTES_PER_HOUR: '1000000000000',
    });
    const { username, password } = service.demo;
    const anonymous = world.client(service.baseUrl);
    const login = await anonymous.post('/api/users/auth/login/', { username, password });
    const { token } = session.parse(JSON.parse(login.body));
    const client = world.client(service.baseUrl, { authorization: `Bearer ${token}` });
    const listed = async (): Promise<number> => (await client.read('/api/users/auth/api-keys/', keys)).length;
    const ids = new Set<number>();
    const create = async (name: string): Promise<void> => {
      const { status, body } = await client.post('/api/users/auth/create-api-key/', { name });
      if (status !== 201) throw new Error(`${status} ${body}`);
      ids.add(created.parse(JSON.parse(body)).id);
    };

    const before = await listed();
    await timed(10, 1, (index) => create(`first ${index}`));
    const alone = await timed(samples ?? ALONE, 1, (index) => create(`alone ${index}`));
    const together = await timed(samples ?? TOGETHER, CALLERS, (index) => create(`together ${index}`));
    const wallet = { hash: randomBytes(32).toString('hex'), key: randomBytes(32) };
    const blob = randomBytes(BLOB_BYTES).toString('base64');
    const blobHash = createHash('sha256').update(blob).digest('hex');
    const put = async (version: number): Promise<void> => {
      const timestamp = String(Math.floor(Date.now() / 1000));
      const text = `PUT:${wallet.hash}:${timestamp}:${blobHash}`;
      const { status, body } = await anonymous.put(
        `/api/vendor/sync/${wallet.hash}/`,
        { blob, version, auth_key: wallet.key.toString('hex') },
        {
          'x-vendor-timestamp': timestamp,
          'x-vendor-signature': createHmac('sha256', wallet.key).update(text).digest('hex'),
        },
      );
      if (status !== 200) throw new Error(`${status} ${body}`);
    };
    await timed(10, 1, (index) => put(index + 1));
    const puts = await timed(samples ?? ALONE, 1, (index) => put(index + 11));
    const wants = { median: wanted.commandMedian, tail: wanted.commandTail };
    return {
      figures: [
        ...latency('one caller', alone.samples, wants),
        { name: 'one caller', value: alone.samples.length / alone.seconds, unit: '1/s' },
        ...latency(`${CALLERS} callers`, together.samples),
        {
          name: `${CALLERS} callers`,
          value: together.samples.length / together.seconds,
          unit: '1/s',
          want: wanted.commandRate,
        },
        ...latency('a blob of 64 KiB', puts.samples, wants),
      ],
      completeness: [
        { what: 'keys of the user', expected: before + ids.size, found: await listed() },
        {
          what: 'keys answered with an id of their own',
          expected: 10 + alone.samples.length + together.samples.length,
          found: ids.size,
        },
      ],
    };
  },
};
