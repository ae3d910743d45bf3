import { z } from 'zod';

import type { BenchCase } from '../case.ts';
import { latency, timed } from '../measure.ts';

const ALONE = 200;
const CALLERS = 16;
const TOGETHER = 800;

const session = z.object({ token: z.string() });
const created = z.object({ id: z.number(), key: z.string() });
const keys = z.array(z.object({ id: z.number() }));

export const commands: BenchCase = {
  name: 'commands',
  summary: 'a write: create an API key, from the request through the log to the answer',
  async run(world, { samples }) {
    const chain = await world.chain({ head: 3, perBlock: 20 });
    const { service } = await world.service('commands', { STARKNET_RPC_URL: chain.url, INDEX_FROM: '0' });
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
    return {
      figures: [
        ...latency('one caller', alone.samples),
        { name: 'one caller', value: alone.samples.length / alone.seconds, unit: '1/s' },
        ...latency(`${CALLERS} callers`, together.samples),
        { name: `${CALLERS} callers`, value: together.samples.length / together.seconds, unit: '1/s' },
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
