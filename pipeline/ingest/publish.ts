import type { Clock } from '../../infra/clock.ts';
import type { OutgoingMessage } from '../../infra/kafka/publisher.ts';
import { decodeBlock } from '../../schemas/decode/index.ts';
import type { MalformedEvent } from '../../schemas/decode/index.ts';
import { AppError } from '../../schemas/errors.ts';
import { contractsKey, countEvents } from '../../schemas/messages/chain-blocks.ts';
import type {
  BlockAccepted,
  BlockBody,
  BlockCause,
  BlockReverted,
  ContractsMap,
} from '../../schemas/messages/chain-blocks.ts';
import type { ChainStatusMessage } from '../../schemas/messages/chain-status.ts';
import { quarantineResolved } from '../../schemas/messages/quarantine.ts';
import type { QuarantineMessage } from '../../schemas/messages/quarantine.ts';
import { partitionOfHeight, topics } from '../../schemas/topics.ts';
import type { Topic } from '../../schemas/topics.ts';
import type { IngestDeps, Lease, PublishedBlock, RecordedBlock } from './ports.ts';

type PublishDeps = Pick<IngestDeps, 'publisher' | 'clock' | 'metrics'>;
type AcceptDeps = PublishDeps & Pick<IngestDeps, 'checks'>;

/** Blocks reverted in one request: each carries a whole body, tens to hundreds of kB. */
export const REVERT_PAGE = 32;

/** Publishes blocks as accepted, then their malformed events. Resolves after Kafka has acknowledged all of it. */
export async function publishAccepted(
  deps: AcceptDeps,
  lease: Lease,
  blocks: readonly PublishedBlock[],
  causeOf: (height: number) => BlockCause,
): Promise<void> {
  const { clock, metrics } = deps;
  const seq = await lease.seq.forAccept();
  const stamp = { seq, chunk: lease.name };
  await publishBlocks(
    deps,
    lease,
    blocks.map((block) => accepted(block, { ...stamp, cause: causeOf(block.block.height) })),
  );
  await publishQuarantine(
    deps,
    lease,
    blocks.flatMap(({ block, contracts }) =>
      malformedEvents(block, contracts).map((event) => quarantined(block, event, clock.wallTime())),
    ),
  );
  await deps.checks.published(blocks.map(({ block }) => block));
  const { name: chunk } = lease;
  metrics.accepted.inc({ chunk }, blocks.length);
  metrics.events.inc(
    { chunk },
    blocks.reduce((sum, { block }) => sum + countEvents(block), 0),
  );
}

/**
 * Publishes blocks as reverted, newest first, under one seq. A block that may have been published with several bodies or
 * contracts maps is reverted with each combination, because its rows depend on both.
 */
export async function publishReverted(
  deps: AcceptDeps,
  lease: Lease,
  blocks: readonly RecordedBlock[],
  seq: number,
): Promise<void> {
  const { clock, metrics } = deps;
  const newestFirst = blocks.toSorted((a, b) => b.body.height - a.body.height);
  const messages = [];
  for (const { body, maps, rereads = [] } of newestFirst) {
    for (const [index, version] of combinations([body, ...rereads], maps).entries()) {
      const own = index === 0 ? seq : await lease.seq.forRevert();
      messages.push(reverted(version, { seq: own, cause: 'reorg', chunk: lease.name }));
    }
  }
  // Before the blocks: once they are reverted in the log, a comparison with it does not find them any more.
  await publishQuarantine(
    deps,
    lease,
    newestFirst.flatMap(({ body, maps, rereads = [] }) =>
      quarantineIds([body, ...rereads], maps).map((id) =>
        quarantineResolved(id, 'reverted', clock.wallTime()),
      ),
    ),
  );
  await publishBlocks(deps, lease, messages);
  const lowest = newestFirst.at(-1)?.body.height;
  if (lowest !== undefined) await deps.checks.reverted(lowest);
  metrics.reverted.inc({ chunk: lease.name }, blocks.length);
}

/**
 * Reverts every version of a block that may be in the log (each body with each contracts map), and publishes the
 * repaired one as accepted, with this cause.
 */
export async function publishRepaired(
  deps: AcceptDeps,
  lease: Lease,
  previous: { readonly bodies: readonly BlockBody[]; readonly maps: readonly ContractsMap[] },
  repaired: PublishedBlock,
  cause: BlockCause,
): Promise<void> {
  const { clock, metrics } = deps;
  const { block, contracts } = repaired;
  const { name: chunk } = lease;
  const messages = [];
  for (const version of combinations(previous.bodies, previous.maps)) {
    messages.push(reverted(version, { seq: await lease.seq.forRevert(), cause: 'repair', chunk }));
  }
  messages.push(accepted(repaired, { seq: await lease.seq.forAccept(), cause, chunk }));
  const malformed = malformedEvents(block, contracts);
  const stillMalformed = new Set(malformed.map((event) => quarantineId(block, event)));
  // Before the blocks: once the repaired block is in the log, a restarted repair may not find the previous one any more.
  await publishQuarantine(
    deps,
    lease,
    quarantineIds(previous.bodies, previous.maps)
      .filter((id) => !stillMalformed.has(id))
      .map((id) => quarantineResolved(id, 'repaired', clock.wallTime())),
  );
  await publishBlocks(deps, lease, messages);
  // After them: if PostgreSQL loses the plan of this repair, only the log tells which entries its block has.
  await publishQuarantine(
    deps,
    lease,
    malformed.map((event) => quarantined(block, event, clock.wallTime())),
  );
  await deps.checks.published([block]);
  metrics.repaired.inc();
}

export async function publishStatus(
  deps: Pick<IngestDeps, 'publisher'>,
  messages: readonly ChainStatusMessage[],
): Promise<void> {
  await publishAcknowledged(
    deps,
    topics.chainStatus,
    messages.map((value) => ({ value })),
  );
}

export function statusStamp(clock: Clock): { v: 1; observed_at: number } {
  return { v: 1, observed_at: clock.wallTime() };
}

/** All messages about one height go to one partition, in the order given. */
async function publishBlocks(
  deps: PublishDeps,
  lease: Lease,
  messages: readonly (BlockAccepted | BlockReverted)[],
): Promise<void> {
  lease.assertValid();
  await publishAcknowledged(
    deps,
    topics.chainBlocks,
    messages.map((value) => {
      const { height } = value.block;
      return { value, key: String(height), partition: partitionOfHeight(height) };
    }),
  );
}

async function publishQuarantine(
  deps: PublishDeps,
  lease: Lease,
  messages: readonly QuarantineMessage[],
): Promise<void> {
  if (messages.length === 0) return;
  // Unversioned: a stale lease holder could overwrite its successor's message about the same block.
  lease.assertValid();
  await publishAcknowledged(
    deps,
    topics.quarantine,
    messages.map((value) => ({ value, key: value.id })),
  );
  deps.metrics.quarantined.inc(messages.filter(({ type }) => type === 'event.quarantined').length);
}

/** Cursors move after this resolves, so every message must have an offset: one without was not stored. */
async function publishAcknowledged<M>(
  { publisher }: Pick<IngestDeps, 'publisher'>,
  topic: Topic<M>,
  messages: readonly OutgoingMessage<M>[],
): Promise<void> {
  const stored = await publisher.publish(topic, messages);
  const acknowledged = stored.filter(({ offset }) => Number.isSafeInteger(offset) && offset >= 0).length;
  if (acknowledged === messages.length) return;
  throw new AppError(
    'STORE_UNAVAILABLE',
    `Kafka acknowledged ${acknowledged} of ${messages.length} messages to ${topic.name}`,
    { retryable: true },
  );
}

type Stamp = Pick<BlockAccepted, 'seq' | 'cause' | 'chunk'>;

function accepted({ block, contracts }: PublishedBlock, stamp: Stamp): BlockAccepted {
  return { type: 'block.accepted', v: 1, ...stamp, block, contracts };
}

function reverted({ block, contracts }: PublishedBlock, stamp: Stamp): BlockReverted {
  return { type: 'block.reverted', v: 1, ...stamp, block, contracts };
}

/** Each body with each distinct contracts map. */
export function combinations(bodies: readonly BlockBody[], maps: readonly ContractsMap[]): PublishedBlock[] {
  return bodies.flatMap((block) => distinctMaps(maps).map((contracts) => ({ block, contracts })));
}

/** Maps that differ, regardless of the order of their contracts. */
function distinctMaps(maps: readonly ContractsMap[]): ContractsMap[] {
  return [...new Map(maps.map((map) => [contractsKey(map), map])).values()];
}

function malformedEvents(block: BlockBody, contracts: ContractsMap): MalformedEvent[] {
  return decodeBlock(block, contracts).malformed;
}

function quarantineId(block: BlockBody, event: MalformedEvent): string {
  return `${block.hash}:${event.position}`;
}

function quarantineIds(bodies: readonly BlockBody[], maps: readonly ContractsMap[]): string[] {
  const ids = bodies.flatMap((block) =>
    maps.flatMap((map) => malformedEvents(block, map).map((event) => quarantineId(block, event))),
  );
  return [...new Set(ids)];
}

function quarantined(block: BlockBody, event: MalformedEvent, now: number): QuarantineMessage {
  return {
    type: 'event.quarantined',
    v: 1,
    id: quarantineId(block, event),
    reason: event.reason,
    block: block.height,
    block_hash: block.hash,
    position: event.position,
    transaction_hash: event.txHash,
    event: event.event,
    quarantined_at: now,
  };
}
