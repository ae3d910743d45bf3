import type { Clock } from '../../infra/clock.ts';
import { decodeBlock, tokenContracts } from '../../schemas/decode/index.ts';
import type { MalformedEvent } from '../../schemas/decode/index.ts';
import type {
  BlockAccepted,
  BlockBody,
  BlockCause,
  BlockReverted,
  ChainBlocksMessage,
  ContractsMap,
} from '../../schemas/messages/chain-blocks.ts';
import type { ChainStatusMessage } from '../../schemas/messages/chain-status.ts';
import { quarantineResolved } from '../../schemas/messages/quarantine.ts';
import type { QuarantineMessage } from '../../schemas/messages/quarantine.ts';
import { partitionOfHeight, topics } from '../../schemas/topics.ts';
import type { Lease } from './lease.ts';
import type { IngestDeps, PublishedBlock, RecordedBlock } from './ports.ts';

export type PublishDeps = Pick<IngestDeps, 'publisher' | 'clock' | 'metrics'>;

/** Blocks taken back in one send: bodies are whole blocks, some tens to hundreds of kB each. */
export const REVERT_PAGE = 32;

/** Publishes blocks as accepted, then what in them could not be read. Resolves after Kafka has all of it. */
export async function publishAccepted(
  deps: PublishDeps,
  lease: Lease,
  blocks: readonly PublishedBlock[],
  causeOf: (height: number) => BlockCause,
): Promise<void> {
  const { publisher, clock, metrics } = deps;
  const seq = await lease.seq.forAccept();
  lease.assertHeld();
  await publisher.publish(
    topics.chainBlocks,
    blocks.map(({ block, contracts }) =>
      outgoing(acceptedMessage(block, contracts, { seq, cause: causeOf(block.height), chunk: lease.name })),
    ),
  );
  await publishQuarantine(
    deps,
    lease,
    blocks.flatMap(({ block, contracts }) =>
      malformedEvents(block, contracts).map((event) => quarantined(block, event, clock.now())),
    ),
  );
  metrics.accepted(
    lease.name,
    blocks.length,
    blocks.reduce((sum, { block }) => sum + countEvents(block), 0),
  );
}

/**
 * Publishes blocks as reverted, newest first, under one seq. A block that may have been published with several bodies or
 * maps is reverted with each of them, for its rows depend on both.
 */
export async function publishReverted(
  deps: PublishDeps,
  lease: Lease,
  blocks: readonly RecordedBlock[],
  seq: number,
): Promise<void> {
  const { publisher, clock, metrics } = deps;
  const newestFirst = blocks.toSorted((a, b) => b.body.height - a.body.height);
  const messages = [];
  for (const { body, maps, rereads = [] } of newestFirst) {
    const said = [body, ...rereads].flatMap((one) => distinctMaps(maps).map((map) => ({ one, map })));
    for (const [index, { one, map }] of said.entries()) {
      const own = index === 0 ? seq : await lease.seq.forRevert();
      messages.push(outgoing(revertedMessage(one, map, { seq: own, cause: 'reorg', chunk: lease.name })));
    }
  }
  lease.assertHeld();
  await publisher.publish(topics.chainBlocks, messages);
  await publishQuarantine(
    deps,
    lease,
    newestFirst.flatMap(({ body, maps, rereads = [] }) =>
      quarantineIds([body, ...rereads], maps).map((id) => quarantineResolved(id, 'reverted', clock.now())),
    ),
  );
  metrics.reverted(lease.name, blocks.length);
}

/**
 * Publishes a block anew with better knowledge: everything that may be in the log of it is reverted first, each of its
 * bodies with each of its maps.
 */
export async function publishRepaired(
  deps: PublishDeps,
  lease: Lease,
  known: { readonly bodies: readonly BlockBody[]; readonly maps: readonly ContractsMap[] },
  { block, contracts: fresh }: PublishedBlock,
): Promise<void> {
  const { publisher, clock, metrics } = deps;
  const stamp = { cause: 'repair', chunk: lease.name } as const;
  const messages = [];
  for (const body of known.bodies) {
    for (const map of distinctMaps(known.maps)) {
      messages.push(outgoing(revertedMessage(body, map, { ...stamp, seq: await lease.seq.forRevert() })));
    }
  }
  messages.push(outgoing(acceptedMessage(block, fresh, { ...stamp, seq: await lease.seq.forAccept() })));
  // First: once the new answer is in the log, a repair that is begun again may not learn of the old one.
  const malformed = malformedEvents(block, fresh);
  const still = new Set(malformed.map((event) => quarantineId(block, event)));
  await publishQuarantine(deps, lease, [
    ...quarantineIds(known.bodies, known.maps)
      .filter((id) => !still.has(id))
      .map((id) => quarantineResolved(id, 'repaired', clock.now())),
    ...malformed.map((event) => quarantined(block, event, clock.now())),
  ]);
  lease.assertHeld();
  await publisher.publish(topics.chainBlocks, messages);
  metrics.repaired(1);
}

export async function publishStatus(
  { publisher }: Pick<IngestDeps, 'publisher'>,
  messages: readonly ChainStatusMessage[],
): Promise<void> {
  await publisher.publish(
    topics.chainStatus,
    messages.map((value) => ({ value })),
  );
}

/** The `contracts` map of a block: what the chain says of every contract with a token-shaped event. */
export async function resolveContracts(
  { standards }: Pick<IngestDeps, 'standards'>,
  block: BlockBody,
): Promise<ContractsMap> {
  const contracts = tokenContracts(block);
  if (contracts.length === 0) return {};
  const facts = await standards.resolve(contracts, { height: block.height, hash: block.hash });
  const entries = contracts.map((contract) => {
    const known = facts.get(contract);
    if (known === undefined) throw new Error(`no standard was given for ${contract}`);
    return [contract, known] as const;
  });
  return Object.fromEntries(entries);
}

/** Maps that differ. They are small, and compared whatever the order of their contracts. */
export function distinctMaps(maps: readonly ContractsMap[]): ContractsMap[] {
  const seen = new Map<string, ContractsMap>();
  for (const map of maps) {
    const entries = Object.entries(map).toSorted(([a], [b]) => (a < b ? -1 : 1));
    seen.set(
      JSON.stringify(entries.map(([contract, facts]) => [contract, facts.standard, facts.class_hash])),
      map,
    );
  }
  return [...seen.values()];
}

export function statusStamp(clock: Clock): { v: 1; observed_at: number } {
  return { v: 1, observed_at: clock.now() };
}

async function publishQuarantine(
  { publisher, metrics }: PublishDeps,
  lease: Lease,
  messages: readonly QuarantineMessage[],
): Promise<void> {
  if (messages.length === 0) return;
  // It has no seq: said after the next holder's word about the same block, it would stand.
  lease.assertHeld();
  await publisher.publish(
    topics.quarantine,
    messages.map((value) => ({ value, key: value.id })),
  );
  metrics.quarantined(messages.filter(({ type }) => type === 'event.quarantined').length);
}

function quarantineIds(bodies: readonly BlockBody[], maps: readonly ContractsMap[]): string[] {
  const ids = bodies.flatMap((block) =>
    maps.flatMap((map) => malformedEvents(block, map).map((event) => quarantineId(block, event))),
  );
  return [...new Set(ids)];
}

function countEvents(block: BlockBody): number {
  return block.transactions.reduce((sum, { events }) => sum + events.length, 0);
}

export interface Stamp {
  readonly seq: number;
  readonly cause: BlockCause;
  readonly chunk: string;
}

export function acceptedMessage(block: BlockBody, contracts: ContractsMap, stamp: Stamp): BlockAccepted {
  return { type: 'block.accepted', v: 1, ...stamp, block, contracts };
}

export function revertedMessage(block: BlockBody, contracts: ContractsMap, stamp: Stamp): BlockReverted {
  return { type: 'block.reverted', v: 1, ...stamp, block, contracts };
}

/** All messages about one height go to one partition, in the order they are sent. */
export function outgoing(message: ChainBlocksMessage) {
  const { height } = message.block;
  return { value: message, key: String(height), partition: partitionOfHeight(height) };
}

export function malformedEvents(block: BlockBody, contracts: ContractsMap): MalformedEvent[] {
  return decodeBlock(block, contracts).malformed;
}

export function quarantineId(block: BlockBody, event: MalformedEvent): string {
  return `${block.hash}:${event.position}`;
}

export function quarantined(block: BlockBody, event: MalformedEvent, now: number): QuarantineMessage {
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
