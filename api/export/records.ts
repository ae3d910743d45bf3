import { createLruCache } from '../../infra/lru.ts';
import { defineScript } from '../../infra/redis/client.ts';
import type { Counters } from '../../infra/redis/client.ts';
import { isRetryable } from '../../schemas/errors.ts';
import { exportRecord } from '../../schemas/api/exports.ts';
import type { ExportRecord } from '../../schemas/api/exports.ts';

/** What is known of the exports of the last hour, by id: in Redis, and in this process while that is unavailable. */
export interface ExportRecords {
  save(userId: number, record: ExportRecord): Promise<void>;
  /** null: the user has none with this id. */
  find(userId: number, id: string): Promise<ExportRecord | null>;
}

const KEPT_SECONDS = 3600;
/** Bounds the memory of this process. */
const MAX_RECORDS = 10_000;

/** KEYS: the record; ARGV: its JSON, seconds. */
const saveScript = defineScript(`redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[2])`);
const findScript = defineScript(`return redis.call('GET', KEYS[1])`);

export function createExportRecords(counters: Pick<Counters, 'run'>, now: () => number): ExportRecords {
  const own = createLruCache<string, { readonly record: ExportRecord; readonly endsAt: number }>(MAX_RECORDS);
  const shared = async (run: () => Promise<unknown>): Promise<unknown> => {
    try {
      return await run();
    } catch (error) {
      if (!isRetryable(error)) throw error;
      return null;
    }
  };
  const keyOf = (userId: number, id: string): string => `export:${userId}:${id}`;
  return {
    async save(userId, record) {
      const key = keyOf(userId, record.id);
      own.set(key, { record, endsAt: now() + KEPT_SECONDS * 1000 });
      await shared(async () => await counters.run(saveScript, [key], [JSON.stringify(record), KEPT_SECONDS]));
    },
    async find(userId, id) {
      const key = keyOf(userId, id);
      // Only the process that sends an export saves its record: Redis may have missed the last state, this process has not.
      const kept = own.get(key);
      if (kept !== undefined && kept.endsAt > now()) return kept.record;
      const text = await shared(async () => await counters.run(findScript, [key], []));
      return typeof text === 'string' ? exportRecord.parse(JSON.parse(text)) : null;
    },
  };
}
