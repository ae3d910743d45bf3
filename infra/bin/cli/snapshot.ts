import type { Command } from 'commander';

import { takeSnapshot } from '../../../projections/engine/snapshot/take.ts';
import { postgresProjections } from '../../../projections/index.ts';
import type { Logger } from '../../log.ts';
import { commandConfig } from '../command-config.ts';
import { withStores } from '../connect.ts';

/** `tds snapshot`: publishes the current state and deletes the commands that led to it. */
export function snapshotCommand(program: Command, log: Logger, say: (line: string) => void): void {
  program
    .command('snapshot')
    .description(
      'publish a snapshot of users, API keys, sync blobs, webhooks and the catalogue to the log, and delete the commands ' +
        'and snapshots before it: deleted data cannot be restored, and rebuilds start from the snapshot',
    )
    .option('--json', 'print the result as JSON', false)
    .action(async (options: { json: boolean }) => {
      await withStores(commandConfig(process.env), 'tds-snapshot', log, async ({ kafka, pool }) => {
        const snapshotted = postgresProjections.filter(({ isSnapshotted }) => isSnapshotted === true);
        const report = await takeSnapshot({ kafka, pool, now: Date.now }, snapshotted);
        if (options.json) return say(JSON.stringify(report, null, 2));
        for (const { name, counts } of report.projections) {
          const rows = Object.entries(counts).map(([table, count]) => `${table} ${count}`);
          say(`${name}: ${rows.join(', ')}`);
        }
        say(`${report.deleted} commands are deleted; those from offset ${report.from} are kept.`);
      });
    });
}
