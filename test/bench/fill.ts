import { createRowEncoder } from '../../infra/clickhouse/row-binary.ts';
import type { RowEncoder } from '../../infra/clickhouse/row-binary.ts';
import { sleep } from '../../infra/lifecycle.ts';
import type { ClickHouseProjection, TouchedBlock } from '../../projections/define.ts';
import { withNames } from '../../projections/define.ts';
import { chainProjections } from '../../projections/index.ts';
import type { Stores } from './stores.ts';
import type { Synthetic } from './synthetic.ts';

const BATCH_ROWS = 50_000;
const SETTLE_MS = 240_000;

/**
 * Fills every table of chain.blocks with generated blocks through the projectors' own code: `project`, the encoder, RowBinary
 * inserts of the size used while catching up, `derive`. Log, consumer and decoder are skipped.
 */
export async function fill(
  stores: Stores,
  synthetic: Pick<Synthetic, 'block'>,
  heights: { first: number; count: number },
  say: (line: string) => void,
): Promise<void> {
  const { clickhouse } = stores;
  const names = tableNames(stores);
  const began = performance.now();
  let said = 0;
  let writing: Promise<void> = Promise.resolve();
  for (let done = 0; done < heights.count;) {
    const batch = chainProjections.map(emptyShare);
    const touched: TouchedBlock[] = [];
    for (let transfers = 0; transfers < BATCH_ROWS && done < heights.count; done += 1) {
      const height = heights.first + done;
      const item = synthetic.block(height, height);
      for (const { projection, encoders } of batch) {
        for (const [table, rows] of Object.entries(projection.project(item))) encoders.get(table)?.add(rows);
      }
      touched.push({ height, chunk: 'bench', offset: item.offset, isNew: false });
      transfers += item.decoded.transfers.length;
    }
    // Generate the next batch while one is being written.
    await writing;
    writing = write(batch, touched);
    const percent = Math.floor((100 * done) / heights.count);
    if (percent >= said + 10) {
      said = percent;
      say(`filled ${percent} % after ${((performance.now() - began) / 1000).toFixed(0)} s`);
    }
  }
  await writing;

  async function write(batch: readonly Share[], touched: readonly TouchedBlock[]): Promise<void> {
    for (const { projection, encoders } of batch) {
      await Promise.all(
        [...encoders].map(async ([table, encoder]) => {
          const { columns } = encoder;
          await clickhouse.insertEncoded(withNames(`{{${table}}}`, names), columns, encoder.take());
        }),
      );
      for (const { sql, params } of projection.derive?.(touched) ?? []) {
        await clickhouse.command(withNames(sql, names), { params });
      }
    }
  }
}

interface Share {
  readonly projection: ClickHouseProjection;
  readonly encoders: ReadonlyMap<string, RowEncoder>;
}

function emptyShare(projection: ClickHouseProjection): Share {
  const tables = Object.entries(projection.tables);
  return {
    projection,
    encoders: new Map(tables.map(([name, { columns }]) => [name, createRowEncoder(columns)])),
  };
}

/** Base and derived tables. */
function tableNames({ served }: Stores): Record<string, string> {
  const placeholders = chainProjections.flatMap(({ ddl }) =>
    [...ddl.matchAll(/\{\{([a-z_]+)\}\}/g)].map(([, name = '']) => name),
  );
  return Object.fromEntries(placeholders.map((name) => [name, served.table(name)]));
}

/** Waits until ClickHouse runs no merges. */
export async function untilMerged({ number }: Stores): Promise<number> {
  const began = performance.now();
  for (let quiet = 0; quiet < 4 && performance.now() - began < SETTLE_MS;) {
    quiet = (await number('SELECT count() AS n FROM system.merges')) === 0 ? quiet + 1 : 0;
    await sleep(500);
  }
  return (performance.now() - began) / 1000;
}
