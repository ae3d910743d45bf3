import type { Actors } from './actors.ts';
import { NOBODY } from './actors.ts';
import { feltOfWords, hexOf, item, mix } from './hash.ts';
import { encodeEvent, type Layout, type Movement, type RawEvent } from './layouts.ts';
import { malformedEvent } from './malformed.ts';
import { FEE_UNITS, GRANT_UNITS, type NoteItem, type TxPlan } from './schedule.ts';
import { selectors } from './selectors.ts';
import { ETH, STRK, layoutOf, tokens, type Standard } from './tokens.ts';

/** One transfer as it was meant, before it became an event. */
export type TrueTransfer = {
  block: number;
  txIndex: number;
  txHash: string;
  /** Place of the event in its block, and in its transaction. */
  position: number;
  eventIndex: number;
  /** Place in a batch, else 0. */
  item: number;
  token: bigint;
  standard: Standard;
  from: bigint;
  to: bigint;
  tokenId: bigint | null;
  amount: bigint;
  isFee: boolean;
  fee: bigint;
  feeToken: bigint;
  reverted: boolean;
  layout: Layout;
};

/** An event that no decoder may understand. */
export type TrueMalformed = { block: number; position: number; token: bigint; kind: string };

/** A transaction of a block with its receipt; the finality is added when it is served. */
export type SimTx = {
  hash: string;
  transaction: Record<string, unknown>;
  receipt: Record<string, unknown>;
  events: RawEvent[];
};

export type Draft = { txs: SimTx[]; transfers: TrueTransfer[]; malformed: TrueMalformed[]; events: number };

export type RenderContext = {
  seed: number;
  actors: Actors;
  contents: (token: number, note: number) => readonly NoteItem[];
  tokenOfNote: (note: number) => number;
  txHash: (plan: TxPlan) => string;
  /** How often an unreadable event is put into a transaction: 0 to 1. */
  malformed: number;
};

export type BlockPlace = { height: number; sequencer: number };

type Scribe = {
  events: RawEvent[];
  move(token: number, movement: Movement, layout: Layout): void;
};

/** Writes one transaction at the end of the block. */
export function renderTx(context: RenderContext, place: BlockPlace, plan: TxPlan, draft: Draft): void {
  const { actors } = context;
  const hash = context.txHash(plan);
  const chance = mix(context.seed, plan.origin, plan.slot * 4 + plan.sub, plan.salt ^ 0xe7);
  const feeAmount = BigInt(plan.fee) * item(FEE_UNITS, plan.feeToken === ETH ? 1 : 0);
  const facts = {
    block: place.height,
    txIndex: draft.txs.length,
    txHash: hash,
    fee: feeAmount,
    feeToken: item(tokens, plan.feeToken).address,
    reverted: plan.kind === 'reverted',
  };
  const scribe = createScribe(draft, facts);

  if (plan.kind === 'moves') renderMoves(context, place, plan, chance, scribe);
  if (plan.kind === 'quiet') noise(context, plan, chance, 0, scribe);
  if (plan.grant !== null) renderGrant(context, place, plan, scribe);
  if (context.malformed > 0 && plan.kind === 'moves' && (chance >>> 9) % 1000 < context.malformed * 1000) {
    const { event, kind } = malformedEvent(chance, actors.hex(plan.sender), actors.hex(place.sequencer));
    const position = draft.events + scribe.events.length;
    draft.malformed.push({ block: place.height, position, token: BigInt(event.from_address), kind });
    scribe.events.push(event);
  }
  if (plan.kind === 'moves' || plan.kind === 'quiet' || plan.kind === 'fund') {
    if (chance % 3 === 0) {
      const data = [hash, '0x1', '0x1'];
      scribe.events.push({
        from_address: actors.hex(plan.sender),
        keys: [selectors.transaction_executed],
        data,
      });
    }
  }
  if (plan.fee > 0) {
    const layout = layoutOf(item(tokens, plan.feeToken), place.height, chance >>> 5, false);
    const from = actors.address(plan.sender);
    const movement = {
      from,
      to: actors.address(place.sequencer),
      operator: from,
      items: [{ id: null, amount: feeAmount }],
    };
    scribe.move(plan.feeToken, movement, layout);
    const last = draft.transfers.at(-1);
    if (last !== undefined) last.isFee = true;
  }
  draft.events += scribe.events.length;
  draft.txs.push(envelope(context, plan, chance, hash, feeAmount, scribe.events));
}

type Facts = Pick<TrueTransfer, 'block' | 'txIndex' | 'txHash' | 'fee' | 'feeToken' | 'reverted'>;

function createScribe(draft: Draft, facts: Facts): Scribe {
  const events: RawEvent[] = [];
  return {
    events,
    move(tokenIndex, movement, layout) {
      const token = item(tokens, tokenIndex);
      const eventIndex = events.length;
      const silent = layout === 'erc20:3/0';
      for (const [index, part] of movement.items.entries()) {
        draft.transfers.push({
          ...facts,
          position: draft.events + eventIndex,
          eventIndex,
          item: index,
          token: token.address,
          standard: token.standard,
          from: movement.from,
          to: movement.to,
          tokenId: part.id,
          amount: silent ? 0n : part.amount,
          isFee: false,
          layout,
        });
      }
      events.push(encodeEvent(layout, token.hex, movement));
    },
  };
}

function renderMoves(
  context: RenderContext,
  place: BlockPlace,
  plan: TxPlan,
  chance: number,
  scribe: Scribe,
): void {
  const operator = context.actors.address(plan.sender);
  for (const [index, move] of plan.moves.entries()) {
    noise(context, plan, chance, index, scribe);
    const token = context.tokenOfNote(move.note);
    const items = context.contents(token, move.note);
    const movement = {
      from: context.actors.address(move.from),
      to: context.actors.address(move.to),
      operator,
      items,
    };
    const batch = items.length !== 1 || (chance >>> (index + 3)) % 6 === 0;
    scribe.move(token, movement, layoutOf(item(tokens, token), place.height, chance >>> (index + 7), batch));
  }
}

function renderGrant(context: RenderContext, place: BlockPlace, plan: TxPlan, scribe: Scribe): void {
  if (plan.grant === null) return;
  const { token, to, units } = plan.grant;
  const amount = BigInt(units) * (GRANT_UNITS.get(token) ?? 1n);
  const from = plan.sender === NOBODY ? 0n : context.actors.address(plan.sender);
  const movement = { from, to: context.actors.address(to), operator: from, items: [{ id: null, amount }] };
  scribe.move(token, movement, layoutOf(item(tokens, token), place.height, units, false));
  if (plan.kind === 'deposit') {
    const data = [context.actors.hex(to), hexOf(amount), '0x0'];
    scribe.events.push({ from_address: bridgeHex, keys: [selectors.deposit_handled], data });
  }
}

const bridgeHex = '0x73314940630fd6dcda0d772d4c972c4e0a9946bef9dabf4ef84eda8ef542b82';
const poolHex = '0x4d0390b777b424e43839cd1e744799f3de6c176c7e32c1812a41dbd9c19db6a';
const approvers = [STRK, ETH, 2, 3, 4] as const;

/** Events that are no transfers, and must be taken for none. */
function noise(context: RenderContext, plan: TxPlan, chance: number, index: number, scribe: Scribe): void {
  const draw = mix(chance, index, 0x9015e, 0);
  const owner = context.actors.hex(plan.sender);
  if (draw % 5 === 0) {
    const token = item(tokens, item(approvers, (draw >>> 8) % approvers.length));
    const amount = hexOf(BigInt(draw) * 1_000_000_000n);
    const keyed = (draw >>> 5) % 2 === 0;
    scribe.events.push({
      from_address: token.hex,
      keys: keyed ? [selectors.Approval, owner, poolHex] : [selectors.Approval],
      data: keyed ? [amount, '0x0'] : [owner, poolHex, amount, '0x0'],
    });
  }
  if (draw % 7 === 0) {
    const amounts = [
      hexOf(BigInt(draw)),
      '0x0',
      '0x0',
      '0x0',
      '0x0',
      '0x0',
      hexOf(BigInt(draw >>> 3)),
      '0x0',
    ];
    scribe.events.push({ from_address: poolHex, keys: [selectors.Swap], data: [owner, ...amounts, owner] });
    scribe.events.push({ from_address: poolHex, keys: [selectors.Sync], data: amounts.slice(0, 4) });
  }
  if (draw % 41 === 0) scribe.events.push({ from_address: poolHex, keys: [], data: ['0x1', '0x2', '0x3'] });
}

const bounds = { max_amount: '0x5f5e100', max_price_per_unit: '0xba43b7400' };
const v3 = {
  resource_bounds: { l1_gas: bounds, l2_gas: bounds, l1_data_gas: bounds },
  tip: '0x0',
  paymaster_data: [],
  account_deployment_data: [],
  nonce_data_availability_mode: 'L1',
  fee_data_availability_mode: 'L1',
};

function envelope(
  context: RenderContext,
  plan: TxPlan,
  chance: number,
  hash: string,
  fee: bigint,
  events: RawEvent[],
): SimTx {
  const words = (n: number) => feltOfWords(context.seed, chance, plan.origin, n);
  const old = plan.feeToken === ETH;
  const sender = context.actors.hex(plan.sender);
  const nonce = hexOf(BigInt(plan.origin * 64 + plan.slot));
  const account = { signature: [words(1), words(2)], nonce: plan.kind === 'deploy' ? '0x0' : nonce };
  const pay = old ? { max_fee: hexOf(fee * 2n) } : v3;
  const version = old ? '0x1' : '0x3';
  const unit = old ? 'WEI' : 'FRI';
  const done = plan.kind === 'reverted' ? revertedAs(plan, sender) : { execution_status: 'SUCCEEDED' };
  const receipt = {
    type: 'INVOKE',
    transaction_hash: hash,
    actual_fee: { amount: hexOf(fee), unit },
    ...done,
    messages_sent: [],
    events,
    execution_resources: {
      l1_gas: 0,
      l2_gas: 700_000 + (chance % 9_000_000),
      l1_data_gas: 128 + (chance % 512),
    },
  };

  switch (plan.kind) {
    case 'deploy': {
      const { account_deployment_data: _none, ...resources } = v3;
      const transaction = {
        type: 'DEPLOY_ACCOUNT',
        version,
        ...account,
        contract_address_salt: words(3),
        constructor_calldata: [words(4), '0x0'],
        class_hash: accountClassHash,
        ...resources,
      };
      return {
        hash,
        events,
        transaction,
        receipt: { ...receipt, type: 'DEPLOY_ACCOUNT', contract_address: sender },
      };
    }
    case 'declare': {
      const transaction = {
        type: 'DECLARE',
        version: old ? '0x2' : '0x3',
        ...account,
        sender_address: sender,
        class_hash: words(5),
        compiled_class_hash: words(6),
        ...pay,
      };
      return { hash, events, transaction, receipt: { ...receipt, type: 'DECLARE' } };
    }
    case 'deposit': {
      const transaction = {
        type: 'L1_HANDLER',
        version: '0x0',
        nonce,
        contract_address: bridgeHex,
        entry_point_selector: selectors.handle_deposit,
        calldata: [words(7).slice(0, 42), events[0]?.data[1] ?? '0x0', '0x1', '0x0'],
      };
      const extra = {
        type: 'L1_HANDLER',
        actual_fee: { amount: '0x0', unit: 'WEI' },
        message_hash: words(8),
      };
      return { hash, events, transaction, receipt: { ...receipt, ...extra } };
    }
    case 'moves':
    case 'quiet':
    case 'fund':
    case 'reverted': {
      const called = events[0]?.from_address ?? poolHex;
      const calldata = ['0x1', called, selectors.transfer, '0x3', words(9), hexOf(BigInt(chance)), '0x0'];
      const transaction = { type: 'INVOKE', version, ...account, sender_address: sender, calldata, ...pay };
      return { hash, events, transaction, receipt };
    }
  }
}

export const accountClassHash = '0x36078334509b514626504edc9fb252328d1a240e4e948bef8d0c08dff45927f';

function revertedAs(plan: TxPlan, sender: string): Record<string, string> {
  const reason = `Transaction execution has failed:\n0: Error in the called contract (contract address: ${sender}):\nExecution failed. Failure reason: ("u256_sub Overflow") at slot ${plan.slot}.`;
  return { execution_status: 'REVERTED', revert_reason: reason };
}
