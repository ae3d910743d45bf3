import type { Command } from 'commander';

import type { Logger } from '../../log.ts';
import { catalogueCommand } from './catalogue.ts';
import { exportCommand } from './export.ts';
import { keysCommand } from './keys.ts';
import { migrateCommand } from './migrate.ts';
import { pricesCommand } from './prices.ts';
import { quarantineCommand } from './quarantine.ts';
import { rebuildCommand } from './rebuild.ts';
import { contractsCommand, reclassifyCommand } from './reclassify.ts';
import { reportsCommand } from './reports.ts';
import { revertCommand } from './revert.ts';
import { snapshotCommand } from './snapshot.ts';
import { statusCommand } from './status.ts';
import { usersCommand } from './users.ts';
import { verifyCommand } from './verify.ts';

/** Adds its command to the program. */
type Register = (program: Command, log: Logger, say: (line: string) => void) => void;

/** The commands that do one thing and end, in the order of the help text. */
export const commands: readonly Register[] = [
  migrateCommand,
  usersCommand,
  keysCommand,
  reclassifyCommand,
  contractsCommand,
  revertCommand,
  statusCommand,
  quarantineCommand,
  verifyCommand,
  rebuildCommand,
  exportCommand,
  catalogueCommand,
  pricesCommand,
  snapshotCommand,
  reportsCommand,
];
