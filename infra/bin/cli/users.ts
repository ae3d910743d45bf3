import type { Command } from 'commander';
import { createInterface } from 'node:readline/promises';
import { Writable } from 'node:stream';

import { addUser, setDisabled, setPassword } from '../operator/accounts.ts';
import { AppError } from '../../../schemas/errors.ts';
import type { Logger } from '../../log.ts';
import { commandConfig } from '../command-config.ts';
import { asOperator } from './as-operator.ts';

export function usersCommand(program: Command, log: Logger, say: (line: string) => void): void {
  const users = program.command('users').description('manage users');
  users
    .command('add')
    .description('create a user; prompts for the password or reads it from standard input')
    .argument('<username>')
    .option('--email <address>')
    .option('--admin', 'grant admin rights', false)
    .action(async (username: string, options: { email?: string; admin: boolean }) => {
      const password = await readPassword(`Password of ${username}: `);
      const { id } = await asOperator(commandConfig(process.env), log, (deps) =>
        addUser(deps, { username, password, email: options.email ?? null, isAdmin: options.admin }),
      );
      say(`User ${username} has id ${id}.`);
    });
  users
    .command('password')
    .description(
      'change a password and end the sessions of the user; prompts for the password or reads it from standard input',
    )
    .argument('<username>')
    .action(async (username: string) => {
      const password = await readPassword(`New password of ${username}: `);
      await asOperator(commandConfig(process.env), log, (deps) => setPassword(deps, username, password));
      say(`Changed the password of user ${username} and ended its sessions.`);
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
    'disable a user: rejects its log-in, sessions and API keys, and stops its webhooks',
    true,
    'is disabled',
  );
  disabling('enable', 'enable a disabled user, its API keys and webhooks', false, 'is enabled');
}

/** Reads from a terminal without echo, otherwise the first line of standard input. */
async function readPassword(prompt: string): Promise<string> {
  const { stdin: input } = process;
  const isTerminal = input.isTTY === true;
  // Readline would echo the line, also the one of a pipe if the output is a terminal.
  const output = new Writable({ write: (_chunk, _encoding, done) => done() });
  const reader = createInterface({ input, output, terminal: isTerminal });
  if (isTerminal) process.stdout.write(prompt);
  try {
    for await (const line of reader) return line;
    throw new AppError('INVALID', 'No password was given');
  } finally {
    reader.close();
    if (isTerminal) process.stdout.write('\n');
  }
}
