import type { Command } from 'commander';

import { addApiKey } from '../operator/accounts.ts';
import type { Logger } from '../../log.ts';
import { commandConfig } from '../command-config.ts';
import { asOperator } from './as-operator.ts';

export function keysCommand(program: Command, log: Logger, say: (line: string) => void): void {
  const keys = program.command('keys').description('API keys');
  keys
    .command('add')
    .description('make an API key; it is shown this once')
    .argument('<username>', 'whose key it is')
    .argument('<name>', 'what it is for')
    .option('--origin <origin...>', 'only from these origins')
    .option('--ip <network...>', 'only from these addresses or networks')
    .action(async (username: string, name: string, options: { origin?: string[]; ip?: string[] }) => {
      const { id, key } = await asOperator(commandConfig(process.env), log, (deps) =>
        addApiKey(deps, {
          username,
          name,
          allowedOrigins: options.origin ?? [],
          allowedIps: options.ip ?? [],
        }),
      );
      say(`Key ${id} of ${username}: ${key}`);
    });
}
