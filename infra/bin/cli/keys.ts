import type { Command } from 'commander';

import { addApiKey } from '../operator/accounts.ts';
import type { Logger } from '../../log.ts';
import { commandConfig } from '../command-config.ts';
import { asOperator } from './as-operator.ts';

export function keysCommand(program: Command, log: Logger, say: (line: string) => void): void {
  const keys = program.command('keys').description('manage API keys');
  keys
    .command('add')
    .description('create an API key; it is printed only once')
    .argument('<username>', 'owner of the key')
    .argument('<name>', 'name of the key')
    .option('--origin <origin...>', 'restrict the key to these origins')
    .option('--ip <network...>', 'restrict the key to these addresses or networks')
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
