import { z } from 'zod';

import { parseMessage } from '../../../projections/streams.ts';
import { decodeBlock } from '../../../schemas/decode/index.ts';
import { selectors } from '../../../schemas/decode/layouts.ts';
import { isRetryable } from '../../../schemas/errors.ts';
import { toFelt } from '../../../schemas/felt.ts';
import type { RawEvent } from '../../../schemas/messages/chain-blocks.ts';
import { felt, tokenStandard, tokenStandards } from '../../../schemas/messages/common.ts';
import type { TokenStandard } from '../../../schemas/messages/common.ts';
import { parseMessageId } from '../../../schemas/messages/quarantine.ts';
import type { MessageRef } from '../../../schemas/messages/quarantine.ts';
import { topics } from '../../../schemas/topics.ts';
import type { Topic } from '../../../schemas/topics.ts';
import type { Kafka, LogMessage } from '../../kafka/client.ts';
import { sqlRows } from '../../postgres/client.ts';
import type { Pool } from '../../postgres/client.ts';
import { findQuarantined } from './quarantine-items.ts';
import type { QuarantineItem } from './quarantine-items.ts';

/** Characters of a message that are shown. */
const SHOWN_CHARACTERS = 2000;

const repairRow = z.object({ requested_at: z.date(), attempts: z.int(), next_try_at: z.date() });
const factsRow = z.object({ standard: tokenStandard, class_hash: felt.nullable(), basis: z.string() });

/** Everything known about an entry, as JSON. */
export async function showQuarantined(
  { pool, kafka }: { pool: Pool; kafka: Pick<Kafka, 'readRange'> },
  id: string,
): Promise<Record<string, unknown>> {
  const item = await findQuarantined(pool, id);
  const { entry, ...shown } = item;
  const head = { ...shown, resolved_at: time(entry?.resolved_at ?? null) };
  return item.kind === 'event'
    ? { ...head, ...(await showEvent(pool, item)) }
    : { ...head, ...(await showMessage(kafka, item)) };
}

async function showEvent(pool: Pool, { entry }: QuarantineItem): Promise<Record<string, unknown>> {
  const event = entry?.event ?? null;
  if (entry === null || event === null) return {};
  const [facts] = await sqlRows(
    pool,
    factsRow,
    'SELECT standard, class_hash, basis FROM tds.contract_standards WHERE contract = $1',
    [event.from_address],
  );
  const [repair] = await sqlRows(
    pool,
    repairRow,
    'SELECT requested_at, attempts, next_try_at FROM tds.repairs WHERE height = $1 AND done_at IS NULL',
    [entry.block],
  );
  return {
    pending_repair: repair ?? null,
    block: entry.block,
    block_hash: entry.block_hash,
    position: entry.position,
    transaction_hash: entry.transaction_hash,
    contract: { address: event.from_address, ...(facts ?? { standard: 'not looked up' }) },
    event,
    selectors: event.keys.slice(0, 2).map((key) => nameOfSelector(key) ?? 'unknown selector'),
    readings: Object.fromEntries(tokenStandards.map((standard) => [standard, decodeAs(event, standard)])),
  };
}

/** The event decoded as one standard: its transfers, or the reason why it has none. */
function decodeAs(event: RawEvent, standard: TokenStandard): unknown {
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
  if (bad !== undefined) return bad.reason;
  return transfers.map(({ from, to, amount, tokenId }) => ({
    from,
    to,
    amount: String(amount),
    token_id: tokenId === null ? null : String(tokenId),
  }));
}

function nameOfSelector(key: string): string | undefined {
  return Object.entries(selectors).find(([, selector]) => selector === key)?.[0];
}

/** The message from the log; from the quarantine where Kafka is unavailable or the message is deleted. */
async function showMessage(
  kafka: Pick<Kafka, 'readRange'>,
  { id, entry }: QuarantineItem,
): Promise<Record<string, unknown>> {
  const place = parseMessageId(id);
  const topic = Object.values(topics).find(({ name }) => name === place?.topic);
  const inLog = topic === undefined || place === null ? null : await readOne(kafka, topic, place);
  const value = inLog?.value ?? Buffer.from(entry?.value ?? '', 'base64');
  const parsed = inLog === null || topic === undefined ? null : parseMessage<unknown>(topic, inLog);
  return {
    ...place,
    key: inLog?.key ?? null,
    written_at: time(inLog?.timestamp ?? null),
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
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch {
    return { text: text.slice(0, SHOWN_CHARACTERS) };
  }
  if (text.length <= SHOWN_CHARACTERS) return { message: json };
  const { data } = outlineOf.safeParse(json);
  return {
    about: { type: data?.type, seq: data?.seq, height: data?.block?.height, hash: data?.block?.hash },
    text: text.slice(0, SHOWN_CHARACTERS),
  };
}

function time(ms: number | null): string | null {
  return ms === null ? null : new Date(ms).toISOString();
}
