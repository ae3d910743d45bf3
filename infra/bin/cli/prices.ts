import type { Command } from 'commander';

import { parseTimestamp } from '../../../api/http/params.ts';
import { backfillPrices } from '../../../pipeline/observe/prices/backfill.ts';
import type { BackfillProgress, BackfillReport } from '../../../pipeline/observe/prices/backfill.ts';
import { guardLimits } from '../../../pipeline/observe/prices/observer.ts';
import { AppError } from '../../../schemas/errors.ts';
import type { Felt } from '../../../schemas/felt.ts';
import { systemClock } from '../../clock.ts';
import type { Logger } from '../../log.ts';
import { withAdvisoryLocks } from '../../postgres/advisory-lock.ts';
import { openPriceFeed, readCommonTokens } from '../roles/observe-prices.ts';
import { commandConfig } from '../command-config.ts';
import { withStores } from '../connect.ts';
import type { Stores } from '../connect.ts';
import { addressOf } from './arguments.ts';
import { showProgress, withInterrupt } from './progress.ts';

const HOUR_MS = 3_600_000;
const YEAR_MS = 365 * 24 * HOUR_MS;

/** `tds prices`: publishes past prices, which the observer does not fetch. */
export function pricesCommand(program: Command, log: Logger, say: (line: string) => void): void {
  program
    .command('prices')
    .description('manage prices in US dollars')
    .command('backfill')
    .description(
      'publish past prices from the price feed, one per hour; a killed run resumes when run again, without requesting ' +
        'completed windows of 250 hours again (docs/operations.md)',
    )
    .argument('[token...]', 'token addresses (default: common tokens)')
    .option(
      '--from <time>',
      'first time, such as 2025-01-31 or 2025-01-31T12:00Z (default: one year before --to)',
    )
    .option('--to <time>', 'last time (default: now)')
    .option('--json', 'print the result as JSON', false)
    .action(async (addresses: string[], options: { from?: string; to?: string; json: boolean }) => {
      const to = options.to === undefined ? Date.now() : timeOf(options.to);
      const from = options.from === undefined ? to - YEAR_MS : timeOf(options.from);
      if (from > to) throw new AppError('INVALID', '--from is after --to');
      const named = addresses.map(addressOf);
      const report = await withStores(commandConfig(process.env), 'tds-prices', log, (stores) =>
        backfill(stores, named, { from, to, log, quiet: options.json }),
      );
      if (options.json) return say(JSON.stringify(report, null, 2));
      say(
        `${report.published} prices are published; of ${report.total} windows, ${report.skipped} were already done.`,
      );
      for (const [reason, count] of Object.entries(report.refused))
        say(`  not published: ${count} ${reason}`);
    });
}

async function backfill(
  { config, pool, kafka, releasers }: Stores,
  named: readonly Felt[],
  { from, to, log, quiet }: { from: number; to: number; log: Logger; quiet: boolean },
): Promise<BackfillReport> {
  const feed = openPriceFeed(config);
  releasers.push('price feed', () => feed.close());
  const publisher = kafka.publisher();
  releasers.push('publisher', () => publisher.close());
  const tokens = named.length > 0 ? [...new Set(named)] : ((await readCommonTokens(pool)) ?? []);
  if (tokens.length === 0) throw new AppError('INVALID', 'No token is common yet: specify at least one');

  const progress = showProgress({ what: 'prices', reading: 'reading', unit: 'windows', quiet });
  const onProgress = ({ done, skipped, total }: BackfillProgress): void =>
    progress.show({ phase: 'reading', read: done - skipped, total: total - skipped });
  const limits = guardLimits(config);
  const range = { from, to: Math.min(to, Date.now()), stepMs: HOUR_MS };
  try {
    return await withAdvisoryLocks(
      pool,
      ['prices backfill'],
      () => 'Another process is backfilling prices',
      () =>
        withInterrupt((signal) =>
          backfillPrices({
            feed,
            pool,
            publisher,
            limits,
            tokens,
            ...range,
            clock: systemClock,
            log,
            signal,
            onProgress,
          }),
        ),
    );
  } finally {
    progress.end();
  }
}

function timeOf(text: string): number {
  const time = parseTimestamp(text);
  if (time === null) throw new AppError('INVALID', `Not a time: ${text}`);
  return time.getTime();
}
