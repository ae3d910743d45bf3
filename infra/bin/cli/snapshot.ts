import type { Command } from 'commander';

import { takeSnapshot } from '../../../projections/engine/snapshot/take.ts';
import { postgresProjections } from '../../../projections/index.ts';
import type { Logger } from '../../log.ts';
import { commandConfig } from '../command-config.ts';
import { withStores } from '../connect.ts';

/** `tds snapshot`: the state that commands have led to, in the place of the commands. */
export function snapshotCommand(program: Command, log: Logger, say: (line: string) => void): void {
  program
    .command('snapshot')
    .description(
      'write users, keys and blobs to the log as they are, and delete the commands that led there: what was deleted is ' +
        'gone for good, and a rebuild begins with the snapshot',
    )
    .option('--json', 'the outcome as JSON', false)
    .action(async (options: { json: boolean }) => {
      await withStores(commandConfig(process.env), 'tds-snapshot', log, async ({ kafka, pool }) => {
        const snapshotted = postgresProjections.filter(({ isSnapshotted }) => isSnapshotted === true);
        const report = await takeSnapshot({ kafka, pool, now: Date.now }, snapshotted);
        if (options.json) return say(JSON.stringify(report, null, 2));
        for (const { name, counts } of report.projections) {
          const rows = Object.entries(counts).map(([table, count]) => `${table} ${count}`);
          say(`${name}: ${rows.join(', ')}`);
        }
        say(`${report.deleted} commands are deleted; those from offset ${report.from} on are kept.`);
      });
    });
}
