import type { Command } from 'commander';
import { createLogUpdate } from 'log-update';

import { sleep } from '../../lifecycle.ts';
import type { Logger } from '../../log.ts';
import { openCounters } from '../../redis/client.ts';
import { commandConfig } from '../command-config.ts';
import { openCommandPool, openKafka, withConnections } from '../connect.ts';
import type { Connecting } from '../connect.ts';
import { readStatus, renderStatus } from '../operator/status-report.ts';
import type { ServiceStatus } from '../operator/status-report.ts';

/** Redis that does not answer by then is reported as unavailable. */
const REDIS_WITHIN_MS = 1000;

export function statusCommand(program: Command, log: Logger, say: (line: string) => void): void {
  program
    .command('status')
    .description('show chunks, lag, node head, L1 height and quarantine; refreshes in place on a terminal')
    .option('--json', 'print once, as JSON', false)
    .option('--once', 'print once, even on a terminal', false)
    .action(async (options: { json: boolean; once: boolean }) => {
      await withConnections(commandConfig(process.env), log, async (connecting) => {
        const readStatus = await openStatus(connecting);
        if (options.json) return say(JSON.stringify(await readStatus(), null, 2));
        if (options.once || !process.stdout.isTTY) return say(renderStatus(await readStatus()));
        await refreshInPlace(async () => renderStatus(await readStatus()));
      });
    });
}

async function openStatus(connecting: Connecting): Promise<() => Promise<ServiceStatus>> {
  const { config, log, releasers } = connecting;
  const pool = openCommandPool(connecting, 'tds-status');
  const kafka = openKafka(connecting, 'tds-status');
  const counters =
    config.redisUrl === null
      ? null
      : openCounters(config.redisUrl, {
          keyPrefix: config.redisKeyPrefix,
          timeoutMs: config.redisTimeoutMs,
          // The status reports it.
          log: log.child({}, { level: 'silent' }),
        });
  releasers.push('Redis', () => counters?.close());
  await counters?.settled(REDIS_WITHIN_MS);
  return async () => {
    const redis = (await counters?.answers()) ?? null;
    return { ...(await readStatus(pool, kafka, config.stallSeconds)), redis };
  };
}

async function refreshInPlace(render: () => Promise<string>): Promise<void> {
  const stop = new AbortController();
  process.once('SIGINT', () => stop.abort());
  const screen = createLogUpdate(process.stdout);
  try {
    while (!stop.signal.aborted) {
      screen(await render());
      await sleep(1000, stop.signal);
    }
  } finally {
    screen.done();
  }
}
