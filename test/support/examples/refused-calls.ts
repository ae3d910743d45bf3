import { connect } from 'node:net';

import { servedBuilds } from '../../../projections/served.ts';
import type { SimulatedService } from '../simulated-service.ts';
import type { Recorder } from './recorder.ts';
import { ETH } from './values.ts';

/** Calls that are answered with errors. */

/** One body of each error, or several of a status with several codes. */
export async function callInVain(simulated: SimulatedService, { send, refused }: Recorder): Promise<void> {
  const json = { 'content-type': 'application/json' };
  await refused('getBalance', { query: { token_address: 'STRK' }, status: 400 });
  await refused('listTransfers', { status: 400 }, 'unfiltered');
  await refused('listWebhooks', { headers: { authorization: '' }, status: 401 });
  await refused('getToken', { path: { address: '0x1' }, status: 404 });
  await refused('listTokens', { query: { page: '99' }, status: 404 }, 'invalid_page');
  // Not an NFT.
  const ether = { token_address: ETH, nft_token_id: '1' };
  await refused('getNftMetadata', { query: ether, status: 404 }, 'metadata_unavailable');
  await refused('listTransfers', { query: { token: ETH, as_of_block: '3', as_of_hash: '0x1' }, status: 409 });
  await refused('reportDomain', { body: { reason: 'x'.repeat(1_100_000) }, status: 413 });
  await refused('getPrices', { headers: { ...json, 'content-type': 'text/plain' }, body: {}, status: 415 });
  await refused('getPrice', { query: { token_address: '0x'.padEnd(20_000, '1') }, status: 431 });
  await refused('getPrice', {
    query: { token_address: ETH },
    headers: { 'x-min-block': '1000000' },
    status: 503,
  });
  for (let call = 0; call < 10; call += 1)
    await send('getBalances', {
      isBySession: true,
      body: { balances: [{ account_address: ETH, token_address: ETH }] },
    });
  await refused('getBalances', { isBySession: true, body: {}, status: 429 });
  await withBrokenTable(simulated, () => refused('listCategories', { status: 500 }));
}

/** The table lacks a column meanwhile. */
async function withBrokenTable(
  { inspected: { pool } }: SimulatedService,
  run: () => Promise<unknown>,
): Promise<void> {
  const table = `${(await servedBuilds(pool)).schema('catalogue')}.categories`;
  await pool.query(`ALTER TABLE ${table} RENAME COLUMN name TO renamed`);
  try {
    await run();
  } finally {
    await pool.query(`ALTER TABLE ${table} RENAME COLUMN renamed TO name`);
  }
}

/** A body that does not arrive is given up. */
export async function callSlowly({ service }: SimulatedService, { keepError }: Recorder): Promise<void> {
  const { hostname, port } = new URL(service.baseUrl);
  const socket = connect(Number(port), hostname);
  const headers = ['Host: tds', 'Content-Type: application/json', 'Content-Length: 100'];
  socket.write(`POST /api/users/auth/login/ HTTP/1.1\r\n${headers.join('\r\n')}\r\n\r\n{`);
  let text = '';
  for await (const part of socket) text += String(part);
  keepError(408, JSON.parse(text.slice(text.indexOf('{'))));
}
