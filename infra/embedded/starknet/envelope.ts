import type { Actors } from './actors.ts';
import { feltOfWords, hexOf } from './hash.ts';
import type { RawEvent } from './layouts.ts';
import type { TxPlan } from './schedule.ts';
import { selectors } from './selectors.ts';
import { ETH } from './tokens.ts';

/** A transaction with its receipt, without the finality, which is added when it is served. */
export type SimTx = {
  hash: string;
  transaction: Record<string, unknown>;
  receipt: Record<string, unknown>;
  events: RawEvent[];
};

/** A transaction with what a block commits to of it. */
export type CommittedTx = SimTx & {
  transaction: { signature?: string[] };
  receipt: {
    actual_fee: Fee;
    execution_status: 'SUCCEEDED' | 'REVERTED';
    revert_reason?: string;
    messages_sent: { from_address: string; to_address: string; payload: string[] }[];
    execution_resources: { l1_gas: number; l2_gas: number; l1_data_gas: number };
  };
};

type Fee = { amount: string; unit: 'WEI' | 'FRI' };

export const bridgeHex = '0x73314940630fd6dcda0d772d4c972c4e0a9946bef9dabf4ef84eda8ef542b82';
export const poolHex = '0x4d0390b777b424e43839cd1e744799f3de6c176c7e32c1812a41dbd9c19db6a';

const bounds = { max_amount: '0x5f5e100', max_price_per_unit: '0xba43b7400' };
const v3 = {
  resource_bounds: { l1_gas: bounds, l2_gas: bounds, l1_data_gas: bounds },
  tip: '0x0',
  paymaster_data: [],
  account_deployment_data: [],
  nonce_data_availability_mode: 'L1',
  fee_data_availability_mode: 'L1',
};

/** Creates the transaction and receipt for the events of a planned transaction. */
export function envelope(
  context: { seed: number; actors: Actors },
  plan: TxPlan,
  chance: number,
  hash: string,
  fee: bigint,
  events: RawEvent[],
): CommittedTx {
  const words = (n: number) => feltOfWords(context.seed, chance, plan.origin, n);
  const sender = context.actors.hex(plan.sender);
  const done =
    plan.kind === 'reverted' ? revertedAs(plan, sender) : { execution_status: 'SUCCEEDED' as const };
  const { transaction, receipt } = bodyOf(plan, { sender, words, chance, fee, events });
  return {
    hash,
    events,
    transaction,
    receipt: {
      type: transaction['type'],
      transaction_hash: hash,
      actual_fee: { amount: hexOf(fee), unit: plan.feeToken === ETH ? 'WEI' : 'FRI' },
      ...done,
      messages_sent:
        plan.kind === 'quiet' && chance % 2 === 0
          ? [{ from_address: bridgeHex, to_address: words(10).slice(0, 42), payload: [words(11), '0x0'] }]
          : [],
      events,
      execution_resources: {
        l1_gas: 0,
        l2_gas: 700_000 + (chance % 9_000_000),
        l1_data_gas: 128 + (chance % 512),
      },
      ...receipt,
    },
  };
}

type Body = {
  transaction: Record<string, unknown> & CommittedTx['transaction'];
  receipt?: { contract_address?: string; message_hash?: string; actual_fee?: Fee };
};

/** The transaction of each kind, and what its receipt has besides the usual fields. */
function bodyOf(
  plan: TxPlan,
  parts: { sender: string; words: (n: number) => string; chance: number; fee: bigint; events: RawEvent[] },
): Body {
  const { sender, words, chance, fee, events } = parts;
  const old = plan.feeToken === ETH;
  const nonce = hexOf(BigInt(plan.origin * 64 + plan.slot));
  const signed = { signature: [words(1), words(2)], nonce: plan.kind === 'deploy' ? '0x0' : nonce };
  const pay = old ? { max_fee: hexOf(fee * 2n) } : v3;
  const version = old ? '0x1' : '0x3';
  switch (plan.kind) {
    case 'deploy': {
      const { account_deployment_data: _none, ...resources } = v3;
      return {
        transaction: {
          type: 'DEPLOY_ACCOUNT',
          version,
          ...signed,
          contract_address_salt: words(3),
          constructor_calldata: [words(4), '0x0'],
          class_hash: accountClassHash,
          ...resources,
        },
        receipt: { contract_address: sender },
      };
    }
    case 'declare': {
      const hashes = { class_hash: words(5), compiled_class_hash: words(6) };
      return {
        transaction: {
          type: 'DECLARE',
          version: old ? '0x2' : '0x3',
          ...signed,
          sender_address: sender,
          ...hashes,
          ...pay,
        },
      };
    }
    case 'deposit':
      return {
        transaction: {
          type: 'L1_HANDLER',
          version: '0x0',
          nonce,
          contract_address: bridgeHex,
          entry_point_selector: selectors.handle_deposit,
          calldata: [words(7).slice(0, 42), events[0]?.data[1] ?? '0x0', '0x1', '0x0'],
        },
        receipt: { actual_fee: { amount: '0x0', unit: 'WEI' }, message_hash: words(8) },
      };
    case 'moves':
    case 'quiet':
    case 'fund':
    case 'reverted': {
      const called = events[0]?.from_address ?? poolHex;
      const calldata = ['0x1', called, selectors.transfer, '0x3', words(9), hexOf(BigInt(chance)), '0x0'];
      return {
        transaction: { type: 'INVOKE', version, ...signed, sender_address: sender, calldata, ...pay },
      };
    }
  }
}

export const accountClassHash = '0x36078334509b514626504edc9fb252328d1a240e4e948bef8d0c08dff45927f';

function revertedAs(plan: TxPlan, sender: string) {
  const reason = `Transaction execution has failed:\n0: Error in the called contract (contract address: ${sender}):\nExecution failed. Failure reason: ("u256_sub Overflow") at slot ${plan.slot}.`;
  return { execution_status: 'REVERTED' as const, revert_reason: reason };
}
