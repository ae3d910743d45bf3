/**
 * An embedded ClickHouse: `node server.ts --data DIR --port N [--memory-mb N]`.
 *
 * Runs the engine on the folder `DIR/data` and serves the HTTP interface of ClickHouse on 127.0.0.1, with two users: `default`
 * (password in EMBEDDED_CLICKHOUSE_PASSWORD) and the read-only `api` (EMBEDDED_CLICKHOUSE_API_PASSWORD). It exits when its
 * standard input ends, so it never outlives its parent.
 */
import { mkdirSync } from 'node:fs';
import { resolve } from 'node:path';
import { parseArgs } from 'node:util';

import { openSpool } from './body.ts';
import { openEngine } from './engine.ts';
import { createHttpServer } from './http.ts';
import { users } from './users.ts';

const { values } = parseArgs({
  options: {
    data: { type: 'string' },
    port: { type: 'string' },
    'memory-mb': { type: 'string', default: '3072' },
  },
});
const writer = process.env['EMBEDDED_CLICKHOUSE_PASSWORD'] ?? '';
const reader = process.env['EMBEDDED_CLICKHOUSE_API_PASSWORD'] ?? '';
if (values.data === undefined || values.port === undefined || writer === '' || reader === '') {
  process.stderr.write(
    'usage: EMBEDDED_CLICKHOUSE_PASSWORD=… EMBEDDED_CLICKHOUSE_API_PASSWORD=… node server.ts --data DIR --port N\n',
  );
  process.exit(2);
}

const home = resolve(values.data);
mkdirSync(home, { recursive: true });
process.chdir(home);
const memory = Number(values['memory-mb']) * 1024 * 1024;
const spool = await openSpool('spool');
const engine = await openEngine({
  dataDir: resolve('data'),
  memory,
  queryMemory: Math.round(memory * 0.6),
  markCache: 128 * 1024 * 1024,
});
const server = createHttpServer(engine, spool, users({ writer, reader }));

let stopping = false;
function stop(): void {
  if (stopping) return;
  stopping = true;
  server.close();
  server.closeIdleConnections();
  // Acknowledged rows are already on disk, so running queries may be abandoned.
  setTimeout(() => process.exit(0), 3000).unref();
  void engine.close().finally(() => process.exit(0));
}
process.on('SIGTERM', stop).on('SIGINT', stop);
process.stdin.on('end', stop).on('error', stop).resume();
process.stdout.on('error', () => {});
process.stderr.on('error', () => {});

server.on('error', (error) => {
  process.stderr.write(`${error.message}\n`);
  process.exit(1);
});
server.listen(Number(values.port), '127.0.0.1', () => {
  process.stdout.write(`ClickHouse ${engine.version} (embedded) listening on 127.0.0.1:${values.port}\n`);
});
