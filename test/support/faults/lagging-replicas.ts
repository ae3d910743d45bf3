import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { startClickHouse } from '../../../infra/embedded/clickhouse/clickhouse.ts';
import { freePort } from '../../../infra/embedded/ports.ts';
import { listenTcp } from '../../../infra/listen-tcp.ts';
import { createLogger } from '../../../infra/log.ts';

/**
 * A model of a ClickHouse cluster of one shard behind a balancer: two engines, of which the second gets every write late, and
 * each table at its own time. The embedded ClickHouse cannot replicate: it sets no address between servers and runs no
 * distributed DDL. What the model has of ClickHouse's documented behaviour:
 *
 * - A read is answered by a replica that lacks writes of its tables, if there is one. With `select_sequential_consistency`
 *   the second replica refuses it then (289), and the first one lacks only writes without a sequential quorum.
 * - Inserts into one table by sequential quorum exclude each other (286).
 * - Only a statement ON CLUSTER, with a replicated engine, makes a table on both. It does not fill it.
 * - A mutation with a subquery is refused (36), unless `allow_nondeterministic_mutations`; each replica runs it by itself.
 */
export interface LaggingReplicas {
  readonly cluster: string;
  /** Of the balancer. */
  readonly url: string;
  /** Of each replica. */
  readonly replicas: readonly [string, string];
  /** Answers every write with this exception until it is null; after 319 the write is done nevertheless. */
  failWrites(code: number | null): void;
  /** Reads that were refused, and inserts that met another one. */
  readonly refusals: { reads: number; inserts: number };
  /** Resolves when both replicas have every write. */
  drained(): Promise<void>;
  close(): Promise<void>;
}

const CLUSTER = 'main';
/** How long the other replica of a quorum takes. */
const QUORUM_MS = 5;

/** A request of the client: its statement, settings and parameters, and the rows of an insert. */
interface Sent {
  readonly sql: string;
  readonly params: URLSearchParams;
  readonly rows: Buffer | null;
}

/** One engine, as a replica: writes of a table are applied in order. */
interface Replica {
  readonly url: string;
  send(sent: Sent): Promise<Response>;
  /** Runs `write` after all earlier writes of the table, `ms` late. */
  write(table: string, ms: number, write: (replica: Replica) => Promise<unknown>): Promise<void>;
  /** False while writes of these tables are on their way. */
  has(tables: readonly string[]): boolean;
  drained(): Promise<void>;
  close(): Promise<void>;
}

class Refusal extends Error {
  readonly code: number;

  constructor(code: number, message: string) {
    super(`Code: ${code}. DB::Exception: ${message}. (MODEL) (version 26.7.2.1)`);
    this.code = code;
  }
}

/** `lagMs`: how late the second replica gets a write. */
export async function startLaggingReplicas({ lagMs }: { lagMs: number }): Promise<LaggingReplicas> {
  const replicas = [await startReplica(), await startReplica()] as const;
  const refusals = { reads: 0, inserts: 0 };
  const model = createModel(replicas, refusals, lagMs);
  let failing: number | null = null;
  const answer = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const sent = await received(request);
    const isWrite = /^\s*(?:INSERT|DELETE)\b/.test(sent.sql);
    if (isWrite && failing !== null && failing !== 319) throw new Refusal(failing, 'refused');
    const text = await model(sent);
    if (isWrite && failing === 319) throw new Refusal(319, 'unknown status');
    response.writeHead(200, { 'content-type': 'text/plain' }).end(text);
  };
  const server = createServer((request, response) => {
    answer(request, response).catch((error: unknown) => {
      const code = error instanceof Refusal ? String(error.code) : '1002';
      response
        .writeHead(500, { 'x-clickhouse-exception-code': code })
        .end(String(error).replace(/^Error: /, ''));
    });
  });
  const address = { host: '127.0.0.1', port: 0, name: 'The balancer', settings: 'none' };
  const { url } = await listenTcp(server, address);
  return {
    cluster: CLUSTER,
    url: `${url.replace('http://', 'http://tds:any@')}/tds`,
    replicas: [replicas[0].url, replicas[1].url],
    refusals,
    failWrites: (code) => (failing = code),
    drained: async () => void (await Promise.all(replicas.map((replica) => replica.drained()))),
    async close() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
      await Promise.all(replicas.map((replica) => replica.close()));
    },
  };
}

async function startReplica(): Promise<Replica> {
  const dataDir = mkdtempSync(join(tmpdir(), 'tds-replica-'));
  const log = createLogger('replica', 'warn');
  const service = await startClickHouse({ dataDir, port: await freePort(), memoryMb: 1024, log });
  const { username, password, origin } = new URL(service.url);
  const authorization = `Basic ${Buffer.from(`${username}:${password}`).toString('base64')}`;
  const tails = new Map<string, Promise<void>>();
  const replica: Replica = {
    url: service.url,
    async send({ sql, params, rows }) {
      const address = new URL(origin);
      address.search = params.toString();
      if (rows !== null) address.searchParams.set('query', sql);
      address.searchParams.set('database', 'tds');
      const body = rows === null ? sql : new Uint8Array(rows);
      const response = await fetch(address, { method: 'POST', headers: { authorization }, body });
      if (response.ok) return response;
      throw new Refusal(Number(response.headers.get('x-clickhouse-exception-code')), await response.text());
    },
    async write(table, ms, write) {
      const before = tails.get(table) ?? Promise.resolve();
      const done = Promise.all([before, new Promise((resolve) => setTimeout(resolve, ms))]).then(
        async () => void (await write(replica)),
      );
      const tail = done
        .catch(() => {})
        .then(() => {
          if (tails.get(table) === tail) tails.delete(table);
        });
      tails.set(table, tail);
      await done;
    },
    has: (tables) => tables.every((table) => !tails.has(table)),
    async drained() {
      while (tails.size > 0) await Promise.all(tails.values());
    },
    async close() {
      await replica.drained();
      await service.stop();
      rmSync(dataDir, { recursive: true, force: true });
    },
  };
  return replica;
}

/** The balancer and the replication between two replicas; resolves with the answer to a request. */
function createModel(
  [first, second]: readonly [Replica, Replica],
  refusals: { reads: number; inserts: number },
  lagMs: number,
): (sent: Sent) => Promise<Buffer> {
  const inserting = new Set<string>();
  const isSet = ({ params }: Sent, name: string): boolean => params.get(name) === '1';

  /** The replica that answers a read; `read`: its text. */
  const readFrom = async (sent: Sent, read: string): Promise<Response> => {
    const tables = [...read.matchAll(/\b(?:FROM|JOIN|IN)\s+\(?([a-z]\w*)/g)].map(([, table = '']) => table);
    const late = [first, second].find((replica) => !replica.has(tables));
    if (!isSet(sent, 'select_sequential_consistency'))
      return await (late ?? second).send({ ...sent, sql: read });
    // The balancer may choose the second one.
    if (late === second && Math.random() < 0.5) {
      refusals.reads += 1;
      throw new Refusal(289, `Replica does not have all parts of ${tables.join()}`);
    }
    return await first.send({ ...sent, sql: read });
  };

  const insert = async (sent: Sent, table: string): Promise<void> => {
    const quorum = sent.params.get('insert_quorum') ?? '0';
    const isSequential = quorum !== '0' && sent.params.get('insert_quorum_parallel') === '0';
    const [early, late] = isSequential ? [first, second] : [second, first];
    if (isSequential && inserting.has(table)) {
      refusals.inserts += 1;
      throw new Refusal(286, 'Another quorum insert has been already started');
    }
    if (isSequential) inserting.add(table);
    try {
      const write = async (replica: Replica): Promise<Response> => await replica.send(sent);
      await early.write(table, 0, write);
      // An engine that fails makes the test fail: the rows differ.
      late.write(table, lagMs * (0.5 + Math.random()), write).catch(() => {});
      if (isSequential) await new Promise((resolve) => setTimeout(resolve, QUORUM_MS));
    } finally {
      if (isSequential) inserting.delete(table);
    }
  };

  const onCluster = async ({ sql, ...sent }: Sent): Promise<Buffer> => {
    const isCreate = /^CREATE/m.test(sql);
    if (isCreate && !/ENGINE = Replicated\w*MergeTree\('\/[^']*\/\w+', '\{replica\}'/.test(sql))
      throw new Refusal(36, 'The table would not be replicated');
    if (isCreate && /\bAS\s+SELECT\b/.test(sql)) throw new Refusal(36, 'Every replica would fill the table');
    const table = /TABLE (?:IF (?:NOT )?EXISTS )?(\w+)/.exec(sql)?.[1] ?? '';
    const local = sql
      .replace(` ON CLUSTER '${CLUSTER}'`, '')
      .replace(/Replicated(\w*MergeTree)\('[^']*', '[^']*'(?:, )?/, '$1(')
      .replace(/\s*FORMAT JSONEachRow\s*$/, '');
    const isSync = sql.startsWith('SYSTEM SYNC REPLICA');
    if (isSync) await Promise.all([first.drained(), second.drained()]);
    else
      for (const replica of [first, second])
        await replica.write(table, 0, (one) => one.send({ ...sent, sql: local }));
    const rows = ['one', 'two'].map((host) => ({ host, port: 9000, status: 0, error: '' }));
    return Buffer.from(rows.map((row) => JSON.stringify(row)).join('\n'));
  };

  return async (sent) => {
    const { sql } = sent;
    if (sql.includes(` ON CLUSTER '${CLUSTER}'`)) return await onCluster(sent);
    if (/^\s*(?:CREATE|DROP|ALTER|SYSTEM)\b/m.test(sql)) throw new Refusal(36, `One replica only: ${sql}`);
    const [, into, table = '', select] =
      /^\s*(INSERT INTO (\w+)(?:\s*\([^)]*\))?)\s+(?:FORMAT \w+|(SELECT[^]*))$/.exec(sql) ?? [];
    if (into !== undefined && select !== undefined) {
      const read = await readFrom(sent, `${select} FORMAT TabSeparated`);
      const rows = Buffer.from(await read.arrayBuffer());
      if (rows.length > 0) await insert({ ...sent, sql: `${into} FORMAT TabSeparated`, rows }, table);
      return Buffer.alloc(0);
    }
    if (into !== undefined) {
      await insert(sent, table);
      return Buffer.alloc(0);
    }
    const [, mutated] = /^\s*DELETE FROM (\w+)/.exec(sql) ?? [];
    if (mutated !== undefined) {
      if (/\bSELECT\b/.test(sql) && !isSet(sent, 'allow_nondeterministic_mutations'))
        throw new Refusal(36, 'A mutation with a subquery');
      for (const replica of [first, second]) await replica.write(mutated, 0, (one) => one.send(sent));
      return Buffer.alloc(0);
    }
    if (!/^\s*SELECT\b/.test(sql)) throw new Refusal(48, `Not modelled: ${sql}`);
    return Buffer.from(await (await readFrom(sent, sql)).arrayBuffer());
  };
}

async function received(request: IncomingMessage): Promise<Sent> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(Buffer.from(chunk));
  const body = Buffer.concat(chunks);
  const { searchParams: params } = new URL(request.url ?? '', 'http://model');
  const query = params.get('query');
  params.delete('query');
  // One statement may become several on one engine, which refuses an id that it has not yet released (216).
  params.delete('query_id');
  return query === null
    ? { sql: body.toString(), params, rows: null }
    : { sql: query, params, rows: body.length === 0 ? null : body };
}
