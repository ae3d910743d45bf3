import type { z } from 'zod';

import { adsMessage } from './messages/ads.ts';
import { balancesMessage } from './messages/balances.ts';
import { chainBlocksMessage } from './messages/chain-blocks.ts';
import { chainStatusMessage } from './messages/chain-status.ts';
import { commandsMessage } from './messages/commands.ts';
import { nftMessage } from './messages/nft.ts';
import { pricesMessage } from './messages/prices.ts';
import { quarantineMessage } from './messages/quarantine.ts';
import { requestsMessage } from './messages/requests.ts';
import { snapshotsMessage } from './messages/snapshots.ts';
import { tokensMessage } from './messages/tokens.ts';
import { usageMessage } from './messages/usage.ts';

/**
 * Declaration of a topic; consumers and producers refer to topics by their entry in `topics`. `KAFKA_TOPIC_PREFIX` is put
 * before every name, so that tests or two installations can share a broker.
 */
export interface Topic<M> {
  readonly name: string;
  /** The message key, for readers of this file. */
  readonly key: string;
  /** Fixed for the life of the topic, because keys are assigned by it; checked at start. */
  readonly partitions: number;
  /** Milliseconds, or `forever` for topics from which read models are rebuilt. */
  readonly retention: number | 'forever';
  /** The broker stamps the messages, because their times decide what is deleted; else the producer does. */
  readonly isStampedByBroker?: true;
  /** Strict parser of a message's value. */
  readonly schema: z.ZodType<M>;
}

function topic<M>(entry: Topic<M>): Topic<M> {
  return entry;
}

/** Heights per range: a range is in one partition, so that all messages about a height are in order. */
export const HEIGHT_RANGE = 1024;
export const CHAIN_BLOCKS_PARTITIONS = 8;

export const rangeOf = (height: number): number => Math.floor(height / HEIGHT_RANGE);

/** The heights of a range, both inclusive. */
export const heightsOf = (range: number): { from: number; to: number } => ({
  from: range * HEIGHT_RANGE,
  to: (range + 1) * HEIGHT_RANGE - 1,
});

/** The partition of `chain.blocks` for messages about a height. */
export function partitionOfHeight(height: number): number {
  return rangeOf(height) % CHAIN_BLOCKS_PARTITIONS;
}

const DAY_MS = 86_400_000;

export const topics = {
  chainBlocks: topic({
    name: 'chain.blocks',
    key: 'height (the partition is sent explicitly: partitionOfHeight)',
    partitions: CHAIN_BLOCKS_PARTITIONS,
    retention: 'forever',
    schema: chainBlocksMessage,
  }),
  chainStatus: topic({
    name: 'chain.status',
    key: 'none',
    partitions: 1,
    retention: 'forever',
    schema: chainStatusMessage,
  }),
  tokens: topic({ name: 'tokens', key: 'token', partitions: 4, retention: 'forever', schema: tokensMessage }),
  prices: topic({ name: 'prices', key: 'token', partitions: 4, retention: 'forever', schema: pricesMessage }),
  balances: topic({
    name: 'balances',
    key: 'account:token',
    partitions: 4,
    retention: 'forever',
    schema: balancesMessage,
  }),
  unmovedBalances: topic({
    name: 'unmoved-balances',
    key: 'account:token',
    partitions: 4,
    retention: DAY_MS,
    isStampedByBroker: true,
    schema: balancesMessage,
  }),
  nft: topic({ name: 'nft', key: 'token:id', partitions: 4, retention: 'forever', schema: nftMessage }),
  commands: topic({
    name: 'commands',
    key: 'none',
    partitions: 1,
    retention: 'forever',
    isStampedByBroker: true,
    schema: commandsMessage,
  }),
  snapshots: topic({
    name: 'snapshots',
    key: 'none',
    partitions: 1,
    retention: 'forever',
    schema: snapshotsMessage,
  }),
  ads: topic({
    name: 'ads',
    key: 'ad',
    partitions: 1,
    retention: 'forever',
    isStampedByBroker: true,
    schema: adsMessage,
  }),
  requests: topic({
    name: 'requests',
    key: 'subject (account:token, token, token:id)',
    partitions: 4,
    retention: DAY_MS,
    schema: requestsMessage,
  }),
  usage: topic({
    name: 'usage',
    key: 'API key',
    partitions: 1,
    retention: 400 * DAY_MS,
    schema: usageMessage,
  }),
  quarantine: topic({
    name: 'quarantine',
    key: 'id',
    partitions: 1,
    retention: 'forever',
    schema: quarantineMessage,
  }),
} as const;
