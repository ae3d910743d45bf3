import type { ClickHouseClient } from '@clickhouse/client';
import { z } from 'zod';

import { AppError } from '../../schemas/errors.ts';

export type Settings = Readonly<Record<string, string | number>>;

/** Numbers of 64 bits arrive as strings. */
export const QUOTED = { output_format_json_quote_64bit_integers: 1 } as const;
const QUOTING = Object.keys(QUOTED)[0];
/** ClickHouse does so only for a user whose `readonly` is not 0. */
const CANCELLING = 'cancel_http_readonly_queries_on_client_close';

/** The profile of the API's user. */
interface ReaderProfile {
  /** The user is under `readonly = 1`, and may change no setting. */
  readonly isFixed: boolean;
  /** Bytes of one query; 0: no limit. */
  readonly maxMemory: number;
}

/**
 * The settings of a read as the user may send them: the profile's memory limit stays where it is lower. null: none.
 * A query whose client has gone is cancelled.
 */
export function readerSettings(client: ClickHouseClient) {
  const profileOf = onceSuccessful(() => readProfile(client));
  return async (settings: Settings): Promise<Settings | null> => {
    const { isFixed, maxMemory } = await profileOf();
    if (isFixed) return null;
    const own = { ...settings, [CANCELLING]: 1 };
    const isHigher = maxMemory > 0 && Number(settings['max_memory_usage'] ?? 0) > maxMemory;
    return isHigher ? { ...own, max_memory_usage: maxMemory } : own;
  };
}

/** @throws `CONFIG_INVALID` when numbers of 64 bits would arrive unquoted, and so rounded */
async function readProfile(client: ClickHouseClient): Promise<ReaderProfile> {
  const result = await client.query({
    query: `SELECT toUInt8(getSetting('readonly') = 1) AS fixed, toUInt8(getSetting('${QUOTING}')) AS quoting,
      toString(getSetting('max_memory_usage')) AS memory`,
    format: 'JSONEachRow',
  });
  const [row] = profileRows.parse(await result.json());
  if (row === undefined) return { isFixed: false, maxMemory: 0 };
  if (row.fixed === 1 && row.quoting === 0) {
    throw new AppError(
      'CONFIG_INVALID',
      `The ClickHouse user of the API has readonly = 1: set ${QUOTING} = 1 in its profile`,
    );
  }
  return { isFixed: row.fixed === 1, maxMemory: Number(row.memory) };
}

const profileRows = z.array(z.object({ fixed: z.number(), quoting: z.number(), memory: z.string() }));

/** Runs `work` until it has succeeded once; then its result is returned. */
function onceSuccessful<T>(work: () => Promise<T>): () => Promise<T> {
  let result: Promise<T> | null = null;
  return async () => {
    const running = (result ??= work());
    try {
      return await running;
    } catch (error) {
      if (result === running) result = null;
      throw error;
    }
  };
}
