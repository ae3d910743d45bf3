import { Option } from 'commander';
import type { Command } from 'commander';

import type { QuarantineItem } from '../../../schemas/api/admin/quarantine.ts';
import type { Felt } from '../../../schemas/felt.ts';
import type { Logger } from '../../log.ts';
import { retryQuarantined, skipQuarantined } from '../operator/quarantine-actions.ts';
import { findQuarantinePage } from '../operator/quarantine-answers.ts';
import { withoutEntry } from '../operator/quarantine-items.ts';
import { showQuarantined } from '../operator/quarantine-show.ts';
import type { ShownItem } from '../operator/quarantine-show.ts';
import { commandConfig } from '../command-config.ts';
import { withStores } from '../connect.ts';
import type { Stores } from '../connect.ts';
import { addressOf, nonNegativeInteger, positiveInteger } from './arguments.ts';

/** `tds quarantine`: malformed events and poison messages, and how an operator resolves them. */
export function quarantineCommand(program: Command, log: Logger, say: (line: string) => void): void {
  const quarantine = program
    .command('quarantine')
    .description('manage malformed token events and poison messages');
  const onStores = <T>(work: (stores: Stores) => Promise<T>): Promise<T> =>
    withStores(commandConfig(process.env), 'tds-quarantine', log, work);

  quarantine
    .command('list')
    .description('list open entries, newest first')
    .option('--all', 'include resolved entries', false)
    .addOption(new Option('--kind <kind>', 'only entries of this kind').choices(['event', 'message']))
    .option('--contract <address>', 'only events of this contract', addressOf)
    .option('--block <height>', 'only events of this block', nonNegativeInteger)
    .option('--limit <number>', 'maximum number of entries', positiveInteger, 50)
    .option('--json', 'print as JSON', false)
    .action(
      async (options: {
        all: boolean;
        kind?: QuarantineItem['kind'];
        contract?: Felt;
        block?: number;
        limit: number;
        json: boolean;
      }) => {
        const { all, json, limit, ...filter } = options;
        const { items, next } = await onStores(({ pool }) =>
          findQuarantinePage(pool, { ...filter, limit, open: !all }),
        );
        if (json) return say(JSON.stringify(items, null, 2));
        for (const item of items) say(lines(item));
        if (next !== null) say('More entries exist; raise --limit to see them.');
        if (items.length > 0) return;
        if (Object.keys(filter).length > 0) return say('No entries match.');
        say(all ? 'The quarantine is empty.' : 'No open entries in the quarantine.');
      },
    );

  quarantine
    .command('show')
    .description('print one entry with its raw event or message, decoded as far as possible')
    .argument('<id>')
    .action(async (id: string) =>
      say(JSON.stringify(flattened(await onStores((stores) => showQuarantined(stores, id))), null, 2)),
    );

  quarantine
    .command('retry')
    .description(
      'retry an entry: repair the block of an event, or resume the projections halted on a message',
    )
    .argument('<id>')
    .action(async (id: string) => say(await onStores(({ pool }) => retryQuarantined(pool, id))));

  quarantine
    .command('skip')
    .description(
      'skip an entry: accept that an event stays undecoded, or make projections skip a message now and in rebuilds',
    )
    .argument('<id>')
    .action(async (id: string) => {
      const done = await onStores(async ({ pool, kafka, releasers }) => {
        const publisher = kafka.publisher();
        releasers.push('publisher', () => publisher.close());
        return await skipQuarantined({ pool, publisher, now: Date.now }, id);
      });
      say(done);
    });
}

function flattened({ item, resolved_at: resolvedAt, event, message }: ShownItem): Record<string, unknown> {
  const head = { ...withoutEntry(item), resolved_at: resolvedAt };
  if (event === null) return { ...head, ...message };
  const { contract, readings, expected: _expected, ...rest } = event;
  return {
    ...head,
    ...rest,
    contract: { address: contract.address, ...(contract.facts ?? { standard: 'not looked up' }) },
    readings: Object.fromEntries(
      readings.map(({ standard, problem, transfers }) => [standard, problem ?? transfers]),
    ),
  };
}

function lines(item: QuarantineItem): string {
  const { id, kind, where, reason, since, last_tried: tried, state, halts, rebuilds } = item;
  const halted = [...halts, ...(rebuilds.length === 0 ? [] : [`the rebuild of ${rebuilds.join(', ')}`])];
  const times =
    state === 'open'
      ? `open since ${since}${tried === null ? '' : `; still failing at ${tried}`}`
      : `${state}; quarantined at ${since}`;
  return [
    id,
    `  ${kind} at ${where}`,
    `  ${reason}`,
    `  ${times}${halted.length > 0 ? `; halts ${halted.join(' and ')}` : ''}`,
  ].join('\n');
}
