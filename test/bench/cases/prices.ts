import { z } from 'zod';

import { toFelt } from '../../../schemas/felt.ts';
import { wanted } from '../case.ts';
import type { BenchCase, Completeness } from '../case.ts';
import { untilMerged } from '../fill.ts';
import { servedCase } from '../served-case.ts';
import type { Stores } from '../stores.ts';

const SAMPLES = 300;
const TOKENS = 50;
const HOUR = 3_600_000;
/** One price every five minutes for two years. */
const POINT_MS = 300_000;
const HOURS = 2 * 8760;
const FROM = Date.parse('2023-01-01T00:00:00Z');
const YEAR_HOURS = 8760;

const tokenAt = (index: number): string => toFelt(0x9a1ce_0000n + BigInt(index));
const history = z.object({
  count: z.number(),
  next_start_time: z.string().optional(),
  data: z.array(z.object({ timestamp: z.string(), open_price: z.string(), avg_price: z.string() })),
});
const priceAt = z.object({ data: z.object({ price_usd: z.number() }) });

export const prices: BenchCase = {
  name: 'prices',
  summary: 'price histories and prices at a time, for tokens with a price every five minutes over two years',
  async run(world, { samples }) {
    const { stores, get, measure, figures } = await servedCase(world, 'prices', samples ?? SAMPLES);

    const points = (TOKENS * HOURS * HOUR) / POINT_MS;
    world.say(`filling ${points.toLocaleString('en-US')} prices`);
    await fillPrices(stores);
    world.say('waiting for the merges of ClickHouse');
    await untilMerged(stores);

    const iso = (ms: number): string => new Date(ms).toISOString();
    // Another window each time, so that no answer is cached.
    const window = (index: number, hours: number): string => {
      const start = FROM + ((index * 7) % (HOURS - hours)) * HOUR;
      return `start_time=${iso(start)}&end_time=${iso(start + hours * HOUR - 1)}`;
    };
    const path = (index: number, hours: number, interval: string): string =>
      `/api/price-history/?token_address=${tokenAt(index % TOKENS)}&${window(index, hours)}&interval=${interval}`;
    const at = (index: number): string =>
      `/api/price-at/?token_address=${tokenAt(index % TOKENS)}&at_time=${iso(FROM + index * 1_234_567)}`;

    /** A year of hours takes two answers. */
    const year = async (index: number): Promise<{ rows: number; starts: Set<string> }> => {
      const starts = new Set<string>();
      let rows = 0;
      for (let from: string | undefined = path(index, YEAR_HOURS, '1%20hour'); from !== undefined;) {
        const { data, count: found, next_start_time: next } = history.parse(JSON.parse(await get(from)));
        rows += found;
        for (const { timestamp } of data) starts.add(timestamp);
        from = next === undefined ? undefined : from.replace(/start_time=[^&]*/, `start_time=${next}`);
      }
      return { rows, starts };
    };
    const whole = await year(1);
    const days = history.parse(JSON.parse(await get(path(2, 30 * 24, '1%20day'))));
    const some = priceAt.parse(JSON.parse(await get(at(3))));
    const completeness: Completeness[] = [
      { what: 'hours of a year', expected: YEAR_HOURS, found: whole.rows },
      { what: 'of them different', expected: YEAR_HOURS, found: whole.starts.size },
      { what: 'days of thirty days that begin within one', expected: 31, found: days.count },
      {
        what: 'price at a time',
        expected: Math.floor((3 * 1_234_567) / POINT_MS) + 1,
        found: some.data.price_usd,
      },
    ];

    await measure('the first 5,000 hours of a year', (index) => path(index, YEAR_HOURS, '1%20hour'), {
      tail: wanted.priceHistoryTail,
    });
    await measure('a year of hours, in two answers read and parsed', year, {});
    await measure('a year of days', (index) => path(index, YEAR_HOURS, '1%20day'), {
      tail: wanted.priceHistoryTail,
    });
    await measure('two weeks of hours', (index) => path(index, 14 * 24, '1%20hour'), {
      tail: wanted.priceHistoryTail,
    });
    await measure('price at a time', at, {});
    return {
      figures,
      completeness,
      notes: [`${points.toLocaleString('en-US')} prices of ${TOKENS} tokens, filled by ClickHouse itself.`],
    };
  },
};

/** The n-th price of every token is n + 1 dollars; hours are aggregated from the points by a second statement. */
async function fillPrices({ clickhouse, served }: Stores): Promise<void> {
  const points = served.table('price_points');
  const each = (HOURS * HOUR) / POINT_MS;
  for (let index = 0; index < TOKENS; index += 1) {
    const token = `toFixedString(unhex('${tokenAt(index).slice(2)}'), 32)`;
    const time = `toUInt64(${FROM} + number * ${POINT_MS})`;
    await clickhouse.command(
      `INSERT INTO ${points} SELECT ${token}, intDiv(${time}, ${HOUR}), ${time},
         toUInt256(number + 1) * toUInt256('1${'0'.repeat(41)}'), toString(number + 1), 'bench', number, 0 FROM numbers(${each})`,
    );
    await clickhouse.command(
      `INSERT INTO ${served.table('ohlc_hourly')}
       SELECT token, hour, argMin(usd, seq), min(observed_at), argMax(usd, seq), max(observed_at), min(price),
         argMin(usd, seq), max(price), argMax(usd, seq), sum(price), count(), max(seq), 0 FROM ${points} WHERE token = ${token} GROUP BY token, hour`,
    );
  }
}
