import type { Command } from 'commander';

import type { Logger } from '../../log.ts';
import { commandConfig } from '../command-config.ts';
import { rebuildOf } from '../../../projections/engine/run/run-served.ts';
import { prepareStores } from '../start/prepare-stores.ts';

export function migrateCommand(program: Command, log: Logger, say: (line: string) => void): void {
  program
    .command('migrate')
    .description('create topics, tables and database roles; idempotent')
    .action(async () => {
      const config = commandConfig(process.env);
      const { applied, outdated } = await prepareStores(config, log, new AbortController().signal);
      say(applied.length === 0 ? 'No pending migrations.' : `Applied migrations: ${applied.join(', ')}.`);
      say('Topics, tables and database roles are up to date.');
      for (const { name, version } of outdated)
        say(`Projection ${name} must be rebuilt in version ${version}.`);
      // One after the other, the first swap would hold back the newest blocks until the last.
      if (outdated.length > 0) say(`Run \`${rebuildOf(outdated)}\`.`);
    });
}
