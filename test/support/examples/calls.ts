import { writeFileSync } from 'node:fs';
import { join } from 'node:path';

import { expect } from 'vitest';

import { send, serveOnLoopback } from '../../../infra/embedded/loopback.ts';
import type { SimulatedService } from '../simulated-service.ts';
import { tds } from '../tds.ts';
import { callAdmin, callPending } from './admin-calls.ts';
import { callChain, callEventStream, callExports } from './chain-calls.ts';
import type { Recorder } from './recorder.ts';
import { callInVain, callSlowly } from './refused-calls.ts';
import { CATALOGUE, callAccount, callDirectory, callSync, callUsage, callWebhooks } from './user-calls.ts';
import { hour } from './values.ts';

/**
 * Calls every operation on a service with a price feed and an IPFS gateway that may call webhooks on loopback.
 *
 * @param files the folder of `EXPORT_FILES`
 */
export async function callEverything(
  simulated: SimulatedService,
  recorder: Recorder,
  files: string,
): Promise<void> {
  const receiver = await startReceiver();
  recorder.hide(receiver.url, 'https://example.org/hook');
  const settings = simulated.settings();
  const run = async (...command: string[]): Promise<void> => {
    const { code, stderr } = await tds(settings, ...command);
    expect(code, stderr).toBe(0);
  };
  const catalogue = join(files, 'catalogue.json');
  writeFileSync(catalogue, JSON.stringify(CATALOGUE));
  try {
    await Promise.all([
      run('catalogue', 'import', catalogue),
      run('prices', 'backfill', '--from', hour(-24)),
      callAccount(simulated.service, recorder),
    ]);
    await Promise.all([
      callChain(simulated, recorder),
      callDirectory(recorder),
      callPending(simulated, recorder),
      callSlowly(simulated, recorder),
    ]);
    await Promise.all([
      callEventStream(simulated, recorder),
      callExports(recorder, () => run('export', 'build', '--to', files, '--heights', '5')),
      callWebhooks(recorder, receiver),
      callSync(recorder),
      callUsage(recorder),
      callAdmin(simulated, recorder, 'tx-index'),
      callInVain(simulated, recorder),
    ]);
  } finally {
    await receiver.close();
  }
}

/** A receiver of webhooks. */
async function startReceiver() {
  let isBroken = false;
  const { url, close } = await serveOnLoopback((_, response) => send(response, isBroken ? 500 : 200, '{}'));
  return { url: `${url}/hook`, close, fail: (doesFail: boolean) => void (isBroken = doesFail) };
}
