import { z } from 'zod';

import type { ClickHouse } from '../infra/clickhouse/client.ts';
import type { Kafka } from '../infra/kafka/client.ts';
import { sqlRows } from '../infra/postgres/client.ts';
import type { Sql } from '../infra/postgres/client.ts';
import { topics } from '../schemas/topics.ts';
import type { Readiness } from './health.ts';
import type { ServedBuilds } from './route.ts';

export interface ReadinessDeps {
  readonly pool: Sql;
  readonly clickhouse: Pick<ClickHouse, 'rows'>;
  readonly kafka: Pick<Kafka, 'offsets'>;
  readonly servedBuilds: () => Promise<ServedBuilds>;
  readonly indexedHeight: () => number | null;
}

const checkpointRow = z.object({
  projection: z.string(),
  topic: z.string(),
  partition: z.number(),
  next_offset: z.number(),
});
const haltRow = z.object({
  projection: z.string(),
  topic: z.string(),
  partition: z.number(),
  message_offset: z.number(),
  reason: z.string(),
  halted_at: z.date(),
});
const alarmRow = z.object({ name: z.string(), detail: z.string(), raised_at: z.date() });

/** A store that does not answer by then is away, and the rest is told. */
const STORE_WITHIN_MS = 1500;
const ANSWER_WITHIN_MS = 4000;

/**
 * 200 when the API can answer from its stores and no projection is halted, also during backfill and while the node or
 * the log is away; the body says what is behind, and by how much.
 */
export function createReadiness(deps: ReadinessDeps): () => Promise<Readiness> {
  const { pool, clickhouse, kafka, servedBuilds, indexedHeight } = deps;

  /** Next offset to be written, by `topic:partition`; null while the log does not answer. */
  const highWatermarks = async (names: ReadonlySet<string>): Promise<Map<string, number> | null> => {
    try {
      const asked = Object.values(topics).filter(({ name }) => names.has(name));
      const found = await Promise.all(
        asked.map(async (topic) => (await kafka.offsets(topic)).map((place) => ({ ...place, topic }))),
      );
      return new Map(found.flat().map(({ topic, partition, high }) => [`${topic.name}:${partition}`, high]));
    } catch {
      return null;
    }
  };

  /** One question at a time: while the log is away, more would only pile up. */
  let asking: Promise<Map<string, number> | null> | null = null;
  const watermarks = async (names: ReadonlySet<string>): Promise<Map<string, number> | null> => {
    asking ??= highWatermarks(names).finally(() => {
      asking = null;
    });
    return await withTimeout(asking, STORE_WITHIN_MS, null);
  };

  const look = async (): Promise<Readiness> => {
    const [served, checkpoints, halts, alarms, clickhouseAnswers] = await Promise.all([
      servedBuilds(),
      sqlRows(
        pool,
        checkpointRow,
        `SELECT projection, topic, partition, next_offset
         FROM tds.checkpoints JOIN tds.builds USING (projection, build)
         WHERE state = 'serving' ORDER BY projection, topic, partition`,
      ),
      sqlRows(
        pool,
        haltRow,
        `SELECT projection, topic, partition, message_offset, reason, halted_at
         FROM tds.projection_halts JOIN tds.builds USING (projection, build)
         WHERE state = 'serving' ORDER BY projection, topic, partition`,
      ),
      sqlRows(pool, alarmRow, 'SELECT name, detail, raised_at FROM tds.alarms ORDER BY name'),
      withTimeout(
        clickhouse
          .rows({ name: 'readiness', sql: 'SELECT 1 AS one', row: z.unknown() })
          .then(() => true)
          .catch(() => false),
        STORE_WITHIN_MS,
        false,
      ),
    ]);
    const canRead = isServed(served);
    const heads = await watermarks(new Set(checkpoints.map(({ topic }) => topic)));
    const ok = clickhouseAnswers && canRead && halts.length === 0;
    return {
      ok,
      body: {
        status: ok ? 'ready' : 'not ready',
        postgres: 'ok',
        clickhouse: clickhouseAnswers ? 'ok' : 'unavailable',
        log: heads === null ? 'unavailable' : 'ok',
        read_models: canRead ? 'ok' : 'not built yet',
        indexed_block: indexedHeight(),
        halted: halts.map(({ halted_at, ...halt }) => ({ ...halt, halted_at: halted_at.toISOString() })),
        alarms: alarms.map(({ raised_at, ...alarm }) => ({ ...alarm, raised_at: raised_at.toISOString() })),
        projections: checkpoints.map(({ next_offset, ...place }) => {
          const head = heads?.get(`${place.topic}:${place.partition}`);
          return { ...place, next_offset, lag: head === undefined ? null : Math.max(0, head - next_offset) };
        }),
      },
    };
  };

  const away: Readiness = { ok: false, body: { status: 'not ready', postgres: 'unavailable' } };
  return async () =>
    await withTimeout(
      look().catch(() => away),
      ANSWER_WITHIN_MS,
      away,
    );
}

/** The read models that most routes need are there. */
function isServed(served: ServedBuilds): boolean {
  try {
    for (const name of ['accounts', 'chain-status', 'tokens']) served.schema(name);
    for (const name of ['transfers', 'account_feed', 'indexed_blocks']) served.table(name);
    return true;
  } catch {
    return false;
  }
}

async function withTimeout<T>(work: Promise<T>, ms: number, late: T): Promise<T> {
  const timer = Promise.withResolvers<T>();
  const handle = setTimeout(() => timer.resolve(late), ms);
  try {
    return await Promise.race([work, timer.promise]);
  } finally {
    clearTimeout(handle);
  }
}
