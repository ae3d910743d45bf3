import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';

import { sleep } from '../../infra/lifecycle.ts';
import type { Outcomes } from '../support/abusers.ts';
import type { ChainProcess } from './chain.ts';
import type { Client } from './client.ts';

/** Between two blocks of the chain. */
const BLOCK_MS = 1000;

/**
 * Creates a webhook for every event, on a host that accepts each delivery and never answers, and lets the chain grow. `leave`
 * resolves with the number of attempts; the webhook stays.
 */
export async function startHangingWebhook(
  user: Client,
  chain: ChainProcess,
): Promise<{ leave(): Promise<Outcomes> }> {
  let attempts = 0;
  const server = createServer(() => {
    attempts += 1;
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const { status, body } = await user.post('/api/webhooks/', {
    name: 'everything',
    url: `http://127.0.0.1:${port}/`,
    events: ['transfer.created', 'balance.changed', 'token.launched'],
    subscriptions: [],
  });
  if (status !== 201) throw new Error(`no webhook was created: ${status} ${body}`);
  const leaving = new AbortController();
  const growing = (async () => {
    while (!leaving.signal.aborted) {
      await chain.advance(1);
      await sleep(BLOCK_MS, leaving.signal);
    }
  })();
  return {
    async leave() {
      leaving.abort();
      await growing;
      server.closeAllConnections();
      server.close();
      return { attempts };
    },
  };
}
