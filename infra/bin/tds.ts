import { setDefaultAutoSelectFamilyAttemptTimeout } from 'node:net';

import { Command } from 'commander';

import { settings } from '../config.ts';
import { createLogger } from '../log.ts';
import { earlyLogLevel } from './command-config.ts';
import { runRole } from './process/run-role.ts';
import { roles } from './roles/index.ts';
import { errorText } from './process/error-text.ts';

// Node gives up an address of a host with several after 250 ms, even where the others cannot be reached at all.
setDefaultAutoSelectFamilyAttemptTimeout(2000);

/**
 * The command line: `npm run tds -- <command>`. A role runs until it is stopped; the other commands end by themselves.
 * Settings come from the environment, or from an embedded start found through `DATA_DIR`.
 */
const program = new Command('tds').description('Token data service for Starknet').addHelpText(
  'after',
  `\nSettings (environment):\n${Object.values(settings)
    .map(({ env, doc }) => `  ${env.padEnd(24)} ${doc}`)
    .join('\n')}`,
);

for (const role of roles) {
  const command = program.command(role.name).description(role.summary);
  if (role.name === 'project') command.argument('[name...]', 'only these projections');
  command.action(async (names: string[] | object) => await runRole(role, Array.isArray(names) ? names : []));
}
let hasFailed = false;
// A role is five of the processes of a start, and uses none of what the other commands import.
if (!roles.some(({ name }) => name === process.argv[2])) {
  const { commands } = await import('./cli/index.ts');
  const log = createLogger('tds', earlyLogLevel(process.env), {
    // stdout is for the result. The reason of a failure is the last line of stderr.
    write: (line) => void (hasFailed || process.stderr.write(line)),
  });
  const say = (line: string): void => void process.stdout.write(`${line}\n`);
  for (const register of commands) register(program, log, say);
}

process.stdout.on('error', (error: Error & { code?: string }) => {
  // The reader of stdout has closed it, as `head` does.
  if (error.code === 'EPIPE') process.exit();
  process.stderr.write(`Cannot write the output: ${error.message}\n`);
  process.exit(1);
});
// A lost log line ends no command.
process.stderr.on('error', () => {});
try {
  await program.parseAsync();
} catch (error) {
  hasFailed = true;
  process.stderr.write(`${errorText(error)}\n`);
  process.exitCode = 1;
}
