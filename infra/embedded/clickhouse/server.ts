/**
 * An embedded ClickHouse: `node server.ts --data DIR --port N [--memory-mb N]`.
 *
 * Runs the program `clickhouse-local`, which the library of the npm package `chdb` contains, and lets it open ClickHouse's own
 * HTTP interface on 127.0.0.1 for the tables in `DIR/data`. Two users: `tds` (password in EMBEDDED_CLICKHOUSE_PASSWORD) and the
 * read-only `api` (EMBEDDED_CLICKHOUSE_API_PASSWORD). It exits when its standard input ends, so it never outlives its parent.
 */
import { createHash } from 'node:crypto';
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';

import { libchdbPath } from 'chdb/libchdb';
import { DataType, load, open } from 'ffi-rs';

import { START, serverConfig } from './config.ts';

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

/** Ends the process at once: rows that were acknowledged are on disk, and the library crashes in an orderly exit. */
const stop = (): void => void process.kill(process.pid, 'SIGKILL');
process.on('SIGTERM', stop).on('SIGINT', stop);
process.stdin.on('end', stop).on('error', stop).resume();
process.stdout.on('error', () => {});
process.stderr.on('error', () => {});

const home = resolve(values.data);
const dataDir = join(home, 'data');
const file = join(home, 'config.xml');
mkdirSync(dataDir, { recursive: true });
process.chdir(home);
const config = serverConfig({
  port: Number(values.port),
  dataDir,
  file,
  memory: Number(values['memory-mb']) * 1024 * 1024,
  writerDigest: sha256(writer),
  readerDigest: sha256(reader),
});
rmSync(file, { force: true });
writeFileSync(file, config, { mode: 0o600 });

const LIBRARY = 'chdb';
open({ library: LIBRARY, path: libchdbPath() });
const argv = ['clickhouse-local', `--config-file=${file}`, `--path=${dataDir}`, `--query=${START}`];
// In a thread of its own. It returns only after an error, which it has printed.
await load({
  library: LIBRARY,
  funcName: 'chdb_query_cmdline',
  retType: DataType.External,
  paramsType: [DataType.I32, DataType.StringArray],
  paramsValue: [argv.length, argv],
  runInNewThread: true,
});
stop();

function sha256(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}
