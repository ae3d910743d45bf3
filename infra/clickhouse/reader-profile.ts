import type { ClickHouseClient } from '@clickhouse/client';
import { z } from 'zod';

import { AppError } from '../../schemas/errors.ts';

export type Settings = Readonly<Record<string, string | number>>;

/** Numbers of 64 bits arrive as strings. */
export const QUOTED = { output_format_json_quote_64bit_integers: 1 } as const;
const QUOTING = Object.keys(QUOTED)[0];
/** ClickHouse does so only for a user whose `readonly` is not 0. */
const CANCELLING = 'cancel_http_readonly_queries_on_client_close';

/** Limits of one query: bytes of memory, seconds, bytes read; 0: none. */
const LIMITS = ['max_memory_usage', 'max_execution_time', 'max_bytes_to_read'] as const;

/** The profile of the API's user. */
interface ReaderProfile {
  /** The user is under `readonly = 1`, and may change no setting. */
  readonly isFixed: boolean;
  readonly limits: Readonly<Partial<Record<(typeof LIMITS)[number], number>>>;
}

/**
 * The settings of a read as the user may send them: a limit of the profile stays where it is lower. null: none. A query
 * whose client has gone is cancelled.
 */
export function readerSettings(client: ClickHouseClient) {
  let profile: ReaderProfile | null = null;
  return async (settings: Settings, signal: AbortSignal): Promise<Settings | null> => {
    profile ??= await readProfile(client, signal);
    const { isFixed, limits } = profile;
    if (isFixed) return null;
    const lower = LIMITS.flatMap((name) => {
      const [limit = 0, asked = 0] = [limits[name], settings[name]];
      return limit > 0 && Number(asked) > limit ? [[name, limit] as const] : [];
    });
    return { ...settings, ...Object.fromEntries(lower), [CANCELLING]: 1 };
  };
}

/** @throws `CONFIG_INVALID` when numbers of 64 bits would arrive unquoted, and so rounded */
async function readProfile(client: ClickHouseClient, signal: AbortSignal): Promise<ReaderProfile> {
  const result = await client.query({
    query: `SELECT toUInt8(getSetting('readonly') = 1) AS fixed, toUInt8(getSetting('${QUOTING}')) AS quoting,
      ${LIMITS.map((name) => `toString(getSetting('${name}')) AS ${name}`).join(', ')}`,
    format: 'JSONEachRow',
    abort_signal: signal,
  });
  const [row] = profileRows.parse(await result.json());
  if (row === undefined) return { isFixed: false, limits: {} };
  if (row.fixed === 1 && row.quoting === 0) {
    throw new AppError(
      'CONFIG_INVALID',
      `The ClickHouse user of the API has readonly = 1: set ${QUOTING} = 1 in its profile`,
    );
  }
  return { isFixed: row.fixed === 1, limits: row };
}

const profileRows = z.array(
  z.object({
    fixed: z.number(),
    quoting: z.number(),
    max_memory_usage: z.coerce.number(),
    max_execution_time: z.coerce.number(),
    max_bytes_to_read: z.coerce.number(),
  }),
);
