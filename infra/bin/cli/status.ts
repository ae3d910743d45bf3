import type { Command } from 'commander';
import { createLogUpdate } from 'log-update';

import { required } from '../../config.ts';
import { createKafka } from '../../kafka/client.ts';
import { pause } from '../../lifecycle.ts';
import type { Logger } from '../../log.ts';
import { createPool } from '../../postgres/client.ts';
import { openCounters } from '../../redis/client.ts';
import { commandConfig } from '../command-config.ts';
import { readStatus, renderStatus } from './status-report.ts';

/** Redis that does not answer by then is reported as unavailable. */
const REDIS_WITHIN_MS = 1000;

export function statusCommand(program: Command, log: Logger, say: (line: string) => void): void {
  program
    .command('status')
    .description('show chunks, lag, node head, L1 height and quarantine; refreshes in place on a terminal')
    .option('--json', 'print once, as JSON', false)
    .option('--once', 'print once, even on a terminal', false)
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
              // The status reports it; a log line on stdout would break the JSON.
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
}
