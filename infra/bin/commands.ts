import { createInterface } from 'node:readline/promises';

import type { Command } from 'commander';
import { createLogUpdate } from 'log-update';

import { addApiKey, addUser, setDisabled, setPassword } from './operator/accounts.ts';

import { parseFelt } from '../../schemas/felt.ts';
import { AppError } from '../../schemas/errors.ts';
import { required } from '../config.ts';
import { createKafka } from '../kafka/client.ts';
import { pause } from '../lifecycle.ts';
import { createLogger } from '../log.ts';
import { createPool } from '../postgres/client.ts';
import { openCounters } from '../redis/client.ts';
import { catalogueCommand } from './commands/catalogue.ts';
import { pricesCommand } from './commands/prices.ts';
import { quarantineCommand } from './commands/quarantine.ts';
import { rebuildCommand } from './commands/rebuild.ts';
import { reportsCommand } from './commands/reports.ts';
import { snapshotCommand } from './commands/snapshot.ts';
import { verifyCommand } from './commands/verify.ts';
import { asOperator } from './introduce.ts';
import { prepareStores } from './prepare.ts';
import { reclassify } from './reclassify.ts';
import { commandConfig, earlyLogLevel } from './settings.ts';
import { readStatus, renderStatus } from './status.ts';

/** The commands that do one thing. Each adds itself to the program. */
type Register = (program: Command) => void;

const log = createLogger('tds', earlyLogLevel(process.env, 'warn'));
const say = (line: string): void => void process.stdout.write(`${line}\n`);

const migrateCommand: Register = (program) => {
  program
    .command('migrate')
    .description('make the topics, the tables and the roles of the stores; may be done again at any time')
    .action(async () => {
      const config = commandConfig(process.env);
      const { applied, outdated } = await prepareStores(config, log, new AbortController().signal);
      say(applied.length === 0 ? 'Nothing to migrate.' : `Applied ${applied.join(', ')}.`);
      for (const { name, version } of outdated) {
        say(`${name} is not served in version ${version}: \`tds rebuild ${name}\` builds that and swaps.`);
      }
    });
};

const usersCommand: Register = (program) => {
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
};

const keysCommand: Register = (program) => {
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
};

const reclassifyCommand: Register = (program) => {
  program
    .command('reclassify')
    .description('ask the chain again what a contract is, and repair the blocks it has events in')
    .argument('<address>')
    .action(async (address: string) => {
      const contract = parseFelt(address);
      if (contract === null) throw new AppError('INVALID', `Not an address: ${address}`);
      say(await reclassify(commandConfig(process.env), contract, log));
    });
};

/** A status is not held up longer by a Redis that is away. */
const REDIS_WITHIN_MS = 1000;

const statusCommand: Register = (program) => {
  program
    .command('status')
    .description('chunks, lag, node head, L1 height, quarantine; refreshes in place on a terminal')
    .option('--json', 'once, as JSON', false)
    .option('--once', 'once, also on a terminal', false)
    .action(async (options: { json: boolean; once: boolean }) => {
      const config = commandConfig(process.env);
      const pool = createPool(required(config, 'databaseUrl'), { applicationName: 'tds-status', max: 4 });
      const kafka = createKafka({
        brokers: required(config, 'kafkaBrokers'),
        clientId: 'tds-status',
        topicPrefix: config.kafkaTopicPrefix,
        log,
      });
      const counters =
        config.redisUrl === null
          ? null
          : openCounters(config.redisUrl, {
              keyPrefix: config.redisKeyPrefix,
              timeoutMs: config.redisTimeoutMs,
              // The status tells it; a line of the log between would be no JSON.
              log: log.child({}, { level: 'silent' }),
            });
      await counters?.settled(REDIS_WITHIN_MS);
      const stop = new AbortController();
      process.once('SIGINT', () => stop.abort());
      const screen = createLogUpdate(process.stdout);
      try {
        const watch = process.stdout.isTTY && !options.once && !options.json;
        do {
          const redis = (await counters?.answers()) ?? null;
          const status = { ...(await readStatus(pool, kafka, config.stallSeconds)), redis };
          if (options.json) say(JSON.stringify(status, null, 2));
          else if (watch) screen(renderStatus(status));
          else say(renderStatus(status));
          if (watch) await pause(1000, stop.signal);
        } while (watch && !stop.signal.aborted);
      } finally {
        screen.done();
        counters?.close();
        await Promise.all([pool.end(), kafka.close()]);
      }
    });
};

export const commands: readonly Register[] = [
  migrateCommand,
  usersCommand,
  keysCommand,
  reclassifyCommand,
  statusCommand,
  (program) => quarantineCommand(program, log, say),
  (program) => verifyCommand(program, log, say),
  (program) => rebuildCommand(program, log, say),
  (program) => catalogueCommand(program, log, say),
  (program) => pricesCommand(program, log, say),
  (program) => snapshotCommand(program, log, say),
  (program) => reportsCommand(program, log, say),
];

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
