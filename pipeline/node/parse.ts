import { z } from 'zod';

import { jsonOf } from '../../infra/json.ts';
import type { L1Message, TransactionDetails } from '../../schemas/commitment/transactions.ts';
import { AppError } from '../../schemas/errors.ts';
import { parseFelt } from '../../schemas/felt.ts';
import type { Felt } from '../../schemas/felt.ts';
import { countEvents } from '../../schemas/messages/chain-blocks.ts';
import type {
  BlockHeader as HashedHeader,
  BlockTransaction,
  RawEvent,
} from '../../schemas/messages/chain-blocks.ts';
import { height } from '../../schemas/messages/common.ts';
import { invalidAnswer } from './errors.ts';
import type { BlockHeader, BlockPoint, BlockStatus, ContractClass, FetchedBlock } from './types.ts';

/*
 * Blocks are parsed by hand, because they are nearly all of the traffic and this is about ten times as fast as a schema
 * (measured on mainnet block 65000, 814 events). Unknown fields are ignored; a known field of another type rejects the
 * answer.
 */

type Fields = Record<string, unknown>;

const MAX_SECONDS = 0xffff_ffff;

/** Parses the `result` of `starknet_getBlockWithReceipts`, specification 0.8 to 0.10, and checks it against its counts. */
export function parseBlockWithReceipts(result: unknown, bytes: number): FetchedBlock {
  const block = fields(result, 'block');
  const header = parseHeaderFields(block);
  const items = list(block['transactions'], 'transactions');
  const transactions = items.map((item, index) => parseTransaction(item, index));
  if (new Set(transactions.map(({ hash }) => hash)).size < transactions.length)
    throw invalidAnswer(`block ${header.height} has two transactions with the same hash`);
  const body = {
    height: header.height,
    hash: header.hash,
    parent_hash: header.parentHash,
    timestamp: header.timestamp,
    sequencer_address: felt(block['sequencer_address'], 'sequencer_address'),
    starknet_version: text(block['starknet_version'], 'starknet_version'),
    transaction_count: header.transactionCount,
    event_count: count(block['event_count'], 'event_count'),
    ...parseHashedHeader(block),
    transactions,
  };
  checkCount(body.height, 'transactions', body.transaction_count, transactions.length);
  checkCount(body.height, 'events', body.event_count, countEvents(body));
  const eventCommitment = optional(block, 'event_commitment', felt);
  const details = (): TransactionDetails[] => items.map((item, index) => parseDetails(item, index));
  return { body, status: header.status, eventCommitment, details, bytes };
}

/** Parses the header of any block answer, and ignores its transactions. */
export function parseBlockHeader(result: unknown): BlockHeader {
  return parseHeaderFields(fields(result, 'block'));
}

function parseHeaderFields(block: Fields): BlockHeader {
  return {
    status: blockStatus(block['status']),
    height: storableHeight(block['block_number'], 'block_number'),
    hash: felt(block['block_hash'], 'block_hash'),
    parentHash: felt(block['parent_hash'], 'parent_hash'),
    timestamp: seconds(block['timestamp'], 'timestamp'),
    transactionCount: count(block['transaction_count'], 'transaction_count'),
  };
}

/**
 * The rest of what the hash of a block commits to. Nodes before specification 0.10 lack some of it; then nothing of it is kept.
 */
function parseHashedHeader(block: Fields): { header?: HashedHeader } {
  const mode = block['l1_da_mode'];
  const l1Gas = optional(block, 'l1_gas_price', gasPrice);
  const l1DataGas = optional(block, 'l1_data_gas_price', gasPrice);
  const stateDiffLength = count(block['state_diff_length'], 'state_diff_length');
  const [newRoot, stateDiff, transactions, events, receipts] = HASHED_FELTS.map((name) =>
    optional(block, name, felt),
  );
  if (mode !== 'BLOB' && mode !== 'CALLDATA') return {};
  if (l1Gas === null || l1DataGas === null || stateDiffLength === null) return {};
  if (!newRoot || !stateDiff || !transactions || !events || !receipts) return {};
  const header = {
    new_root: newRoot,
    state_diff_length: stateDiffLength,
    l1_da_mode: mode,
    l1_gas_price: l1Gas,
    l1_data_gas_price: l1DataGas,
    l2_gas_price: optional(block, 'l2_gas_price', gasPrice),
    state_diff_commitment: stateDiff,
    transaction_commitment: transactions,
    event_commitment: events,
    receipt_commitment: receipts,
  } as const;
  return { header };
}

const HASHED_FELTS = [
  'new_root',
  'state_diff_commitment',
  'transaction_commitment',
  'event_commitment',
  'receipt_commitment',
] as const;

/** null where a price is missing: Juno gives null for one of an old block that it does not know. */
function gasPrice(value: unknown, at: string): HashedHeader['l1_gas_price'] | null {
  const price = fields(value, at);
  const amount = (name: string): string | null =>
    optional(price, name, (given) => BigInt(felt(given, `${at}.${name}`)).toString());
  const [wei, fri] = [amount('price_in_wei'), amount('price_in_fri')];
  return wei === null || fri === null ? null : { price_in_wei: wei, price_in_fri: fri };
}

/** A field that nodes of older specifications leave out. */
function optional<T>(block: Fields, name: string, parse: (value: unknown, at: string) => T): T | null {
  const value = block[name];
  return value === undefined || value === null ? null : parse(value, name);
}

/** Rejects unfinished blocks (PENDING, PRE_CONFIRMED) and REJECTED ones. */
function blockStatus(value: unknown): BlockStatus {
  if (value === 'ACCEPTED_ON_L1' || value === 'ACCEPTED_ON_L2') return value;
  throw invalidAnswer(`the block has status ${shown(value)}, not ACCEPTED_ON_L2 or ACCEPTED_ON_L1`);
}

/** A short form of a value. An object of JSON may have no string form: its `toString` can be any value. */
function shown(value: unknown): string {
  if (typeof value === 'string') return JSON.stringify(value.slice(0, 80));
  if (Array.isArray(value)) return 'a list';
  return typeof value === 'object' && value !== null ? 'an object' : String(value);
}

function checkCount(height: number, what: string, promised: number | null, found: number): void {
  if (promised === null || promised === found) return;
  throw new AppError(
    'BLOCK_INCOMPLETE',
    `block ${height}: the header counts ${promised} ${what}, the body has ${found}`,
    { retryable: true, details: { height, what, promised, found } },
  );
}

function parseTransaction(value: unknown, index: number): BlockTransaction {
  const at = `transactions[${index}]`;
  const pair = fields(value, at);
  const transaction = fields(pair['transaction'], `${at}.transaction`);
  const receipt = fields(pair['receipt'], `${at}.receipt`);
  const type = text(transaction['type'], `${at}.type`);
  const { fee, unit } = parseFee(receipt['actual_fee'], transaction['version'], `${at}.actual_fee`);
  const events = list(receipt['events'], `${at}.events`);
  return {
    hash: felt(receipt['transaction_hash'], `${at}.transaction_hash`),
    type,
    sender_address: sender(type, transaction, receipt, at),
    fee,
    fee_unit: unit,
    execution_status: executionStatus(receipt['execution_status'], at),
    events: events.map((event, position) => parseEvent(event, `${at}.events[${position}]`)),
  };
}

/** Types whose transactions have no signature. */
const UNSIGNED: readonly unknown[] = ['L1_HANDLER', 'DEPLOY'];

function parseDetails(value: unknown, index: number): TransactionDetails {
  const at = `transactions[${index}]`;
  const pair = fields(value, at);
  const transaction = fields(pair['transaction'], `${at}.transaction`);
  const receipt = fields(pair['receipt'], `${at}.receipt`);
  const resources = optional(receipt, 'execution_resources', fields) ?? {};
  return {
    signature: UNSIGNED.includes(transaction['type']) ? [] : optional(transaction, 'signature', felts),
    messages: optional(receipt, 'messages_sent', (messages, name) =>
      list(messages, name).map((message) => parseMessage(message, `${at}.${name}`)),
    ),
    revertReason: optional(receipt, 'revert_reason', text),
    l1Gas: count(resources['l1_gas'], `${at}.l1_gas`),
    l1DataGas: count(resources['l1_data_gas'], `${at}.l1_data_gas`),
  };
}

function parseMessage(value: unknown, at: string): L1Message {
  const message = fields(value, at);
  return {
    from_address: felt(message['from_address'], at),
    to_address: felt(message['to_address'], at),
    payload: felts(message['payload'], at),
  };
}

/** The sending account: an INVOKE of version 0 has a contract address, DEPLOY_ACCOUNT a new account in its receipt. */
function sender(type: string, transaction: Fields, receipt: Fields, at: string): Felt | null {
  if (transaction['sender_address'] !== undefined)
    return felt(transaction['sender_address'], `${at}.sender_address`);
  if (type === 'INVOKE') return felt(transaction['contract_address'], `${at}.contract_address`);
  if (type === 'DEPLOY_ACCOUNT') return felt(receipt['contract_address'], `${at}.contract_address`);
  return null;
}

/** `{amount, unit}`, or a bare amount from old nodes, whose unit follows from the transaction's version (3 pays in FRI). */
function parseFee(
  value: unknown,
  version: unknown,
  at: string,
): { fee: string; unit: BlockTransaction['fee_unit'] } {
  const bare = typeof value === 'string';
  const given = bare ? {} : fields(value, at);
  const unit =
    given['unit'] ?? (typeof version === 'string' && BigInt(felt(version, at)) === 3n ? 'FRI' : 'WEI');
  if (unit !== 'WEI' && unit !== 'FRI')
    throw invalidAnswer(`${at}.unit: neither WEI nor FRI: ${shown(unit)}`);
  return { fee: BigInt(felt(bare ? value : given['amount'], `${at}.amount`)).toString(), unit };
}

function executionStatus(value: unknown, at: string): BlockTransaction['execution_status'] {
  if (value === 'SUCCEEDED' || value === 'REVERTED') return value;
  throw invalidAnswer(`${at}.execution_status: neither SUCCEEDED nor REVERTED: ${shown(value)}`);
}

function parseEvent(value: unknown, at: string): RawEvent {
  const event = fields(value, at);
  return {
    from_address: felt(event['from_address'], at),
    keys: felts(event['keys'], at),
    data: felts(event['data'], at),
  };
}

/** Juno gives null for a list without items of a block that it has from its peers. */
function felts(value: unknown, at: string): Felt[] {
  return value === null ? [] : list(value, at).map((item) => felt(item, at));
}

function felt(value: unknown, at: string): Felt {
  const parsed = typeof value === 'string' ? parseFelt(value) : null;
  if (parsed === null) throw invalidAnswer(`${at}: not a felt: ${shown(value)}`);
  return parsed;
}

function fields(value: unknown, at: string): Fields {
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw invalidAnswer(`${at}: not an object: ${shown(value)}`);
  // A non-array object has string keys, and all values are checked before use.
  return value as Fields;
}

function list(value: unknown, at: string): readonly unknown[] {
  if (!Array.isArray(value)) throw invalidAnswer(`${at}: not a list: ${shown(value)}`);
  return value;
}

function text(value: unknown, at: string): string {
  if (typeof value !== 'string') throw invalidAnswer(`${at}: not a string: ${shown(value)}`);
  return value;
}

function integer(value: unknown, at: string): number {
  if (typeof value !== 'number' || !Number.isSafeInteger(value) || value < 0)
    throw invalidAnswer(`${at}: not a non-negative integer: ${shown(value)}`);
  return value;
}

/** A height that the log and the tables can hold. */
function storableHeight(value: unknown, at: string): number {
  const found = height.safeParse(value);
  if (!found.success) throw invalidAnswer(`${at}: not a height: ${shown(value)}`);
  return found.data;
}

/** Unix seconds, as the tables hold them: milliseconds, which some nodes give, are refused. */
function seconds(value: unknown, at: string): number {
  const found = integer(value, at);
  if (found > MAX_SECONDS) throw invalidAnswer(`${at}: ${found} is no time in seconds`);
  return found;
}

/** Headers have counts from specification 0.10 on. */
function count(value: unknown, at: string): number | null {
  return value === undefined || value === null ? null : integer(value, at);
}

/** A felt in any hex form that the specification allows, normalised. */
const looseFelt = z.string().transform((text, context): Felt => {
  const parsed = parseFelt(text);
  if (parsed !== null) return parsed;
  context.addIssue('not a felt');
  return z.NEVER;
});

const point = z
  .object({ block_number: height, block_hash: looseFelt })
  .transform((answer): BlockPoint => ({ height: answer.block_number, hash: answer.block_hash }));

/** The ABI of a Cairo 0 class is a list, that of a Sierra class a JSON string; either may be missing or unreadable. */
const contractClass = z
  .looseObject({ abi: z.union([z.string(), z.array(z.unknown()), z.null()]).optional() })
  .transform(({ abi }): ContractClass => ({ abi: typeof abi === 'string' ? readAbi(abi) : (abi ?? []) }));

function readAbi(text: string): readonly unknown[] {
  const abi = jsonOf(text);
  return Array.isArray(abi) ? abi : [];
}

function reader<T>(what: string, schema: z.ZodType<T>): (result: unknown) => T {
  return (result) => {
    const parsed = schema.safeParse(result);
    if (!parsed.success) throw invalidAnswer(`${what}: ${z.prettifyError(parsed.error)}`);
    return parsed.data;
  };
}

export const readHeight = reader('height', height);
export const readPoint = reader('block', point);
export const readFelt = reader('felt', looseFelt);
export const readFelts = reader('felts', z.array(looseFelt));
export const readVersion = reader('version', z.string().regex(/^v?\d+\.\d+(\.\d+)?/));
export const readClass = reader('class', contractClass);
