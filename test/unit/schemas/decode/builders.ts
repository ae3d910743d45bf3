import { parseFelt } from '../../../../schemas/felt.ts';
import type { Felt } from '../../../../schemas/felt.ts';
import type {
  BlockBody,
  BlockTransaction,
  ContractsMap,
  RawEvent,
} from '../../../../schemas/messages/chain-blocks.ts';
import type { TokenStandard } from '../../../../schemas/messages/common.ts';

/** A felt from any hex text or number; a text that is none is a mistake in the test. */
export function felt(value: string | number | bigint): Felt {
  const parsed = parseFelt(typeof value === 'string' ? value : `0x${value.toString(16)}`);
  if (parsed === null) throw new Error(`not a felt: ${value}`);
  return parsed;
}

/** Written out from the table of selectors, not taken from the decoder. */
export const TRANSFER = '0x99cd8bde557814842a3121e8ddfd433a539b8c9f14bf31ebf108d12e6196e9';
export const SINGLE = '0x182d859c0807ba9db63baf8b9d9fdbfeb885d820be6e206b9dab626d995c433';
export const BATCH = '0x2563683c757f3abe19c4b7237e2285d8993417ddffe0b54a19eb212ea574b08';
export const APPROVAL = '0x134692b230b9e1ffa39098904722134159652b09c5bc41d88d6698779d228ff';
export const ERC20_EVENT = '0x166373381772db0a01c3a66865fc326c297787697aa52a6ea318e38c42302f7';

export const TOKEN = felt('0x7061796d656e74');
export const SEQUENCER = felt('0x1176a1bd84444c89232ec27754698e5d2e7e1a7f1539f12027f28b23ec9f3d8');

type Value = string | number | bigint;

export function event(keys: readonly Value[], data: readonly Value[], from: Felt = TOKEN): RawEvent {
  return { from_address: from, keys: keys.map(felt), data: data.map(felt) };
}

export function transaction(events: RawEvent[], fields: Partial<BlockTransaction> = {}): BlockTransaction {
  return {
    hash: felt('0xabc'),
    type: 'INVOKE',
    sender_address: felt('0x5e4de2'),
    fee: '0',
    fee_unit: 'FRI',
    execution_status: 'SUCCEEDED',
    events,
    ...fields,
  };
}

export function block(transactions: BlockTransaction[]): BlockBody {
  return {
    height: 1,
    hash: felt('0xb1'),
    parent_hash: felt('0xb0'),
    timestamp: 1_700_000_000,
    sequencer_address: SEQUENCER,
    starknet_version: '0.14.0',
    transaction_count: null,
    event_count: null,
    transactions,
  };
}

export function contract(standard: TokenStandard, address: Felt = TOKEN): ContractsMap {
  return { [address]: { standard, class_hash: null } };
}
