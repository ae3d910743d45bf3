import { z } from 'zod';

import { isoOrNull } from '../../../api/http/times.ts';
import { parseMessage } from '../../../projections/streams.ts';
import { decodeBlock } from '../../../schemas/decode/index.ts';
import { layouts, selectors } from '../../../schemas/decode/layouts.ts';
import type { Layout } from '../../../schemas/decode/layouts.ts';
import { isRetryable } from '../../../schemas/errors.ts';
import { toFelt } from '../../../schemas/felt.ts';
import type { Felt } from '../../../schemas/felt.ts';
import type { RawEvent } from '../../../schemas/messages/chain-blocks.ts';
import { felt, tokenStandard, tokenStandards } from '../../../schemas/messages/common.ts';
import type { TokenStandard } from '../../../schemas/messages/common.ts';
import { parseMessageId } from '../../../schemas/messages/quarantine.ts';
import type { MessageRef } from '../../../schemas/messages/quarantine.ts';
import { topics } from '../../../schemas/topics.ts';
import type { Topic } from '../../../schemas/topics.ts';
import { jsonOf } from '../../json.ts';
import type { Kafka, LogMessage } from '../../kafka/client.ts';
import { sqlRows } from '../../postgres/client.ts';
import type { Sql } from '../../postgres/client.ts';
import { findQuarantined } from './quarantine-items.ts';
import type { StoredItem } from './quarantine-items.ts';

/** Characters of a message that are shown. */
export const SHOWN_CHARACTERS = 2000;

const repairRow = z.object({ requested_at: z.date(), attempts: z.int(), next_try_at: z.date() });
const factsRow = z.object({ standard: tokenStandard, class_hash: felt.nullable(), basis: z.string() });

/** A quarantined event, and what could be made of it. */
export interface ShownEvent {
  readonly pending_repair: z.infer<typeof repairRow> | null;
  readonly block: number | null;
  readonly block_hash: Felt | null;
  readonly position: number | null;
  readonly transaction_hash: Felt | null;
  /** `facts`: null while the standard was not looked up. */
  readonly contract: { readonly address: Felt; readonly facts: z.infer<typeof factsRow> | null };
  readonly event: RawEvent;
  /** Names of the token-event selectors in the first two keys; the first is always named. */
  readonly selectors: readonly string[];
  /** The layouts of the events of these names. */
  readonly expected: readonly Pick<Layout, 'event' | 'keys' | 'data' | 'from' | 'to'>[];
  readonly readings: readonly Reading[];
}

/** An event decoded as one standard: its transfers, or why it has none. */
interface Reading {
  readonly standard: TokenStandard;
  readonly problem: string | null;
  readonly transfers: readonly {
    readonly from: Felt;
    readonly to: Felt;
    readonly amount: string;
    readonly token_id: string | null;
  }[];
}

/** Everything known about an entry. */
export interface ShownItem {
  readonly item: StoredItem;
  readonly resolved_at: string | null;
  /** null for a message. */
  readonly event: ShownEvent | null;
  /** null for an event. */
  readonly message: Readonly<Record<string, unknown>> | null;
}

/** @param stores.kafka null: a message is shown as far as the quarantine has copied it */
export async function showQuarantined(
  { pool, kafka }: { pool: Sql; kafka: Pick<Kafka, 'readRange'> | null },
  id: string,
): Promise<ShownItem> {
  const item = await findQuarantined(pool, id);
  const isEvent = item.kind === 'event';
  return {
    item,
    resolved_at: isoOrNull(item.entry?.resolved_at ?? null),
    event: isEvent ? await showEvent(pool, item) : null,
    message: isEvent ? null : await showMessage(kafka, item),
  };
}

async function showEvent(pool: Sql, { entry }: StoredItem): Promise<ShownEvent | null> {
  const event = entry?.event ?? null;
  if (entry === null || event === null) return null;
  const [facts] = await sqlRows(
    pool,
    factsRow,
    'SELECT standard, class_hash, basis FROM tds.contract_standards WHERE contract = $1',
    [event.from_address],
  );
  const [repair] = await sqlRows(
    pool,
    repairRow,
    'SELECT requested_at, attempts, next_try_at FROM tds.pending_repairs WHERE height = $1',
    [entry.block],
  );
  const names = event.keys.slice(0, 2).map(nameOfSelector);
  return {
    pending_repair: repair ?? null,
    block: entry.block,
    block_hash: entry.block_hash,
    position: entry.position,
    transaction_hash: entry.transaction_hash,
    contract: { address: event.from_address, facts: facts ?? null },
    event,
    // The second key of an event of a component is a selector too; of others, it is data.
    selectors: names.flatMap((name, i) => name ?? (i === 0 ? 'unknown selector' : [])),
    expected: layouts.filter((layout) => names.includes(layout.event)),
    readings: tokenStandards.map((standard) => decodeAs(event, standard)),
  };
}

function decodeAs(event: RawEvent, standard: TokenStandard): Reading {
  const zero = toFelt(0n);
  const { transfers, malformed } = decodeBlock(
    {
      height: 0,
      hash: zero,
      parent_hash: zero,
      timestamp: 0,
      sequencer_address: zero,
      starknet_version: '',
      transaction_count: null,
      event_count: null,
      transactions: [
        {
          hash: zero,
          type: 'INVOKE',
          sender_address: null,
          fee: '0',
          fee_unit: 'FRI',
          execution_status: 'SUCCEEDED',
          events: [event],
        },
      ],
    },
    { [event.from_address]: { standard, class_hash: null } },
  );
  const [bad] = malformed;
  return {
    standard,
    problem: bad?.reason ?? null,
    transfers: transfers.map(({ from, to, amount, tokenId }) => ({
      from,
      to,
      amount: String(amount),
      token_id: tokenId === null ? null : String(tokenId),
    })),
  };
}

function nameOfSelector(key: string): string | undefined {
  return Object.entries(selectors).find(([, selector]) => selector === key)?.[0];
}

/** The message from the log; from the quarantine where Kafka is unavailable or the message is deleted. */
async function showMessage(
  kafka: Pick<Kafka, 'readRange'> | null,
  { id, entry }: StoredItem,
): Promise<Record<string, unknown>> {
  const place = parseMessageId(id);
  const topic = Object.values(topics).find(({ name }) => name === place?.topic);
  const inLog =
    topic === undefined || place === null || kafka === null ? null : await readOne(kafka, topic, place);
  const value = inLog?.value ?? Buffer.from(entry?.value ?? '', 'base64');
  const parsed = inLog === null || topic === undefined ? null : parseMessage<unknown>(topic, inLog);
  return {
    ...place,
    key: inLog?.key ?? null,
    written_at: isoOrNull(inLog?.timestamp ?? null),
    bytes: inLog === null ? null : value.length,
    readable_now: parsed === null ? null : !('reason' in parsed),
    ...outline(value.toString('utf8')),
  };
}

async function readOne(
  kafka: Pick<Kafka, 'readRange'>,
  topic: Topic<unknown>,
  { partition, offset }: MessageRef,
): Promise<LogMessage | null> {
  try {
    for await (const message of kafka.readRange(topic, partition, offset, offset + 1)) return message;
  } catch (error) {
    if (!isRetryable(error)) throw error;
  }
  return null;
}

const outlineOf = z.looseObject({
  type: z.unknown(),
  seq: z.unknown(),
  block: z.looseObject({ height: z.unknown(), hash: z.unknown() }).optional(),
});

/** The main fields of a message; a small one as a whole. */
function outline(text: string): Record<string, unknown> {
  const json = jsonOf(text);
  if (json === undefined) return { text: text.slice(0, SHOWN_CHARACTERS) };
  if (text.length <= SHOWN_CHARACTERS) return { message: json };
  const { data } = outlineOf.safeParse(json);
  return {
    about: { type: data?.type, seq: data?.seq, height: data?.block?.height, hash: data?.block?.hash },
    text: text.slice(0, SHOWN_CHARACTERS),
  };
}
