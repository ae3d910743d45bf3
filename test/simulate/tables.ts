import type { ClickHouse } from '../../infra/clickhouse/client.ts';
import type { Row } from '../../infra/clickhouse/row-binary.ts';
import { sortingKey } from '../support/replacing.ts';
import type { SimClock } from './clock.ts';
import type { Count } from './coverage.ts';
import { deriveRows } from './derive.ts';
import { holderRows, passQuery } from './holders.ts';
import type { SimProcess, FaultRates } from './process.ts';
import type { Random } from '../support/random.ts';
import { decodeRows } from './row-decoder.ts';
import { SimTable } from './sim-table.ts';

/** Called on every insert, to check invariants at every moment. */
export type OnInsert = (table: string, rows: readonly Row[], process: SimProcess) => void;

interface ClickHouseWorld {
  readonly clock: SimClock;
  readonly random: Random;
  readonly faultRates: FaultRates;
  readonly count: Count;
}

export interface SimClickHouse {
  create(ddl: string, names: Readonly<Record<string, string>>): void;
  table(name: string): SimTable;
  /** Tables that a running process is writing now. */
  writesInFlight(): { readonly process: SimProcess; readonly table: string }[];
  /** The ClickHouse client of one process. */
  client(process: SimProcess): Pick<ClickHouse, 'insertEncoded' | 'insert' | 'command' | 'rows'>;
  onInsert: OnInsert;
}

export function createSimClickHouse({ clock, random, faultRates, count }: ClickHouseWorld): SimClickHouse {
  const tables = new Map<string, SimTable>();
  /** One entry per call in flight. */
  const calls = new Set<{ readonly process: SimProcess; readonly table: string }>();

  const table = (name: string): SimTable => {
    const found = tables.get(name);
    if (found === undefined) throw new RangeError(`no table ${name}`);
    return found;
  };
  const insertRows = (process: SimProcess, name: string, rows: readonly Row[]): void => {
    table(name).insert(rows);
    if (process.isExpelled && !process.isKilled()) count('zombie write');
    clickhouse.onInsert(name, rows, process);
    if (!random.chance(40)) return;
    count('clickhouse: parts merged');
    random.pick([...tables.values()]).merge(() => random.chance(700));
  };
  const delay = async (): Promise<void> => {
    const isSlow = random.chance(faultRates.slow);
    if (isSlow) count('clickhouse: slow');
    await clock.sleep(isSlow ? random.below(5000) : random.below(12));
  };
  const error = (): Error => Object.assign(new Error('socket hang up'), { code: 'ECONNRESET' });

  const during = async (process: SimProcess, name: string, work: () => Promise<void>): Promise<void> => {
    const call = { process, table: name };
    calls.add(call);
    try {
      await work();
    } finally {
      calls.delete(call);
    }
  };

  const insert = async (process: SimProcess, name: string, rows: readonly Row[]): Promise<void> =>
    await during(process, name, async () => {
      const work = async (): Promise<void> => {
        await delay();
        insertRows(process, name, rows);
      };
      await process.call('clickhouse', `insert ${rows.length} into ${name}`, work, {
        mayBeLate: true,
        error,
      });
    });

  const clickhouse: SimClickHouse = {
    onInsert: () => {},
    table,
    create(ddl, names) {
      for (const [placeholder, name] of Object.entries(names)) {
        tables.set(name, new SimTable(name, sortingKey(ddl, placeholder)));
      }
    },
    writesInFlight: () => [...calls].filter(({ process }) => !process.isKilled()),
    client: (process) => ({
      insertEncoded: async (name, columns, bytes) => await insert(process, name, decodeRows(columns, bytes)),
      insert: async (name, _, rows) => await insert(process, name, rows),
      rows: async ({ name, sql, row }) =>
        await process.call(
          'clickhouse',
          name,
          async () => passQuery(name, sql, table).map((one) => row.parse(one)),
          { error },
        ),
      command: (sql, options) => {
        const [, name = ''] = /INSERT INTO ([a-z0-9_]+)/.exec(sql) ?? [];
        return during(process, name, async () => {
          const work = async (lateMs = 0): Promise<void> => {
            const params = options?.params ?? {};
            const rows =
              holderRows(name, sql, params, table) ??
              deriveRows(name, params, table, (equal) => random.below(equal));
            // Reads now and writes later, even after the client has given up.
            await clock.sleep(lateMs);
            await delay();
            insertRows(process, name, rows);
          };
          await process.call('clickhouse', `derive ${name}`, () => work(), {
            mayBeLate: true,
            late: work,
            error,
          });
        });
      },
    }),
  };
  return clickhouse;
}
