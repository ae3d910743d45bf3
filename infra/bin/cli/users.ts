import type { Command } from 'commander';
import { createInterface } from 'node:readline/promises';

import { addUser, setDisabled, setPassword } from '../operator/accounts.ts';
import { AppError } from '../../../schemas/errors.ts';
import type { Logger } from '../../log.ts';
import { commandConfig } from '../command-config.ts';
import { asOperator } from './as-operator.ts';

export function usersCommand(program: Command, log: Logger, say: (line: string) => void): void {
  const users = program.command('users').description('who may log in');
  users
    .command('add')
    .description('make a user; the password is asked for, or read from standard input')
    .argument('<username>')
    .option('--email <address>')
    .option('--admin', 'an operator', false)
    .action(async (username: string, options: { email?: string; admin: boolean }) => {
      const password = await readPassword(`Password of ${username}: `);
      const { id } = await asOperator(commandConfig(process.env), log, (deps) =>
        addUser(deps, { username, password, email: options.email ?? null, isAdmin: options.admin }),
      );
      say(`User ${username} has id ${id}.`);
    });
  users
    .command('password')
    .description('give a user another password, asked for or read from standard input; ends its sessions')
    .argument('<username>')
    .action(async (username: string) => {
      const password = await readPassword(`New password of ${username}: `);
      await asOperator(commandConfig(process.env), log, (deps) => setPassword(deps, username, password));
      say(`User ${username} has another password; its sessions are ended.`);
    });
  const disabling = (name: string, description: string, isDisabled: boolean, done: string): void => {
    users
      .command(name)
      .description(description)
      .argument('<username>')
      .action(async (username: string) => {
        await asOperator(commandConfig(process.env), log, (deps) => setDisabled(deps, username, isDisabled));
        say(`User ${username} ${done}.`);
      });
  };
  disabling(
    'disable',
    'shut a user out: no log-in, no session, none of its API keys, nothing sent to its webhooks',
    true,
    'is shut out',
  );
  disabling('enable', 'let a user in again, and its API keys', false, 'is let in again');
}

/** From a terminal without echo; else the first line of standard input. */
async function readPassword(prompt: string): Promise<string> {
  const reader = createInterface({
    input: process.stdin,
    output: process.stdout,
    terminal: process.stdin.isTTY,
  });
  if (process.stdin.isTTY) {
    // Shows the prompt, then nothing of what is typed.
    process.stdout.write(prompt);
    Object.assign(reader, { _writeToOutput: () => {} });
  }
  try {
    for await (const line of reader) return line;
    throw new AppError('INVALID', 'No password was given');
  } finally {
    reader.close();
    if (process.stdin.isTTY) process.stdout.write('\n');
  }
}
