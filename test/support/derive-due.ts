import type { ClickHouse } from '../../infra/clickhouse/client.ts';
import { createLogger } from '../../infra/log.ts';
import { runPass } from '../../projections/engine/deferred/pass.ts';
import { deferredProjections } from '../../projections/index.ts';

const log = createLogger('test', process.env['LOG_LEVEL'] ?? 'silent');
let passes = 0;

/** Runs one pass of each projection with deferred tables, whose sources have read everything. True if it derived a block. */
export async function onePass(
  clickhouse: Pick<ClickHouse, 'rows' | 'command' | 'insert'>,
  names: Readonly<Record<string, string>>,
): Promise<boolean> {
  let derived = 0;
  for (const projection of deferredProjections) {
    const number = async (): Promise<number> => (passes += 1);
    const isNewest = async (pass: number): Promise<boolean> => pass === passes;
    const ports = { clickhouse, log, names, readUpTo: () => Infinity, number, isNewest };
    const result = await runPass(projection, ports);
    derived += result.derived;
  }
  return derived > 0;
}

/** Runs passes until nothing is due that can be derived. */
export async function deriveDue(
  clickhouse: Pick<ClickHouse, 'rows' | 'command' | 'insert'>,
  names: Readonly<Record<string, string>>,
): Promise<void> {
  while (await onePass(clickhouse, names));
}
