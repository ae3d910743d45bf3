import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { createClient } from '@clickhouse/client';
import type { ClickHouseClient, ClickHouseClientConfigOptions } from '@clickhouse/client';

import { startClickHouse } from '../../../infra/embedded/clickhouse/clickhouse.ts';
import type { EmbeddedClickHouse } from '../../../infra/embedded/clickhouse/clickhouse.ts';
import { takePorts } from '../../../infra/embedded/ports.ts';
import { createLogger } from '../../../infra/log.ts';

/** An embedded ClickHouse for one test file, with clients that are closed with it. */
export interface TestServer {
  readonly service: EmbeddedClickHouse;
  writer(options?: ClickHouseClientConfigOptions): ClickHouseClient;
  reader(options?: ClickHouseClientConfigOptions): ClickHouseClient;
  /** Kills it with SIGKILL and restarts it on its folder. */
  killAndRestart(): Promise<void>;
  stop(): Promise<void>;
}

export async function startTestServer(memoryMb = 1024): Promise<TestServer> {
  const dataDir = mkdtempSync(join(tmpdir(), 'tds-clickhouse-'));
  const log = createLogger('test', 'warn');
  const { clickhouse: port } = await takePorts(dataDir, ['clickhouse']);
  let service = await startClickHouse({ dataDir, port, memoryMb, log });
  const clients: ClickHouseClient[] = [];
  const client = (url: string, options: ClickHouseClientConfigOptions): ClickHouseClient => {
    // Tests expect errors, so they are not logged.
    const made = createClient({ url, log: { level: 127 }, ...options });
    clients.push(made);
    return made;
  };
  return {
    get service() {
      return service;
    },
    writer: (options = {}) => client(service.url, options),
    reader: (options = {}) => client(service.apiUrl, options),
    async killAndRestart() {
      process.kill(service.pid, 'SIGKILL');
      await service.exited;
      service = await startClickHouse({ dataDir, port, memoryMb, log });
    },
    async stop() {
      await Promise.all(clients.map((one) => one.close()));
      await service.stop();
      rmSync(dataDir, { recursive: true, force: true });
    },
  };
}

/** Rows of a query as JSON objects. */
export async function rowsOf(
  client: ClickHouseClient,
  query: string,
  params: Record<string, unknown> = {},
): Promise<unknown[]> {
  const result = await client.query({
    query,
    query_params: params,
    format: 'JSONEachRow',
    clickhouse_settings: { output_format_json_quote_64bit_integers: 1 },
  });
  return await result.json();
}

/** The code of the ClickHouse exception of a call; without an exception the text of the answer. */
export async function codeOf(call: Promise<unknown>): Promise<string> {
  try {
    return `no error: ${JSON.stringify(await call)}`;
  } catch (error) {
    if (error instanceof Error && 'code' in error) return String(error.code);
    return String(error);
  }
}
