import type { Actors } from './actors.ts';
import { NOBODY } from './actors.ts';
import { bridgeHex, envelope, poolHex, type CommittedTx } from './envelope.ts';
import { hexOf, item, mix } from './hash.ts';
import { encodeEvent, type Layout, type Movement, type RawEvent } from './layouts.ts';
import { malformedEvent } from './malformed.ts';
import type { NoteItem } from './notes.ts';
import { FEE_UNITS, GRANT_UNITS, type TxPlan } from './schedule.ts';
import { selectors } from './selectors.ts';
import { ETH, STRK, layoutOf, tokens, type Standard, type Token } from './tokens.ts';

/** A transfer as intended, independent of its event. */
export type TrueTransfer = {
  block: number;
  txIndex: number;
  txHash: string;
  /** Index of the event in its block. */
  position: number;
  /** Index of the event in its transaction. */
  eventIndex: number;
  /** Index in a batch, otherwise 0. */
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

/** A malformed event, which a decoder must reject. */
export type TrueMalformed = { block: number; position: number; token: bigint; kind: string };

export type Draft = {
  txs: CommittedTx[];
  transfers: TrueTransfer[];
  malformed: TrueMalformed[];
  events: number;
};

export type RenderContext = {
  seed: number;
  actors: Actors;
  contents: (token: number, note: number) => readonly NoteItem[];
  tokenOfNote: (note: number) => number;
  tokens: readonly Token[];
  txHash: (plan: TxPlan) => string;
  /** Fraction of transactions with a malformed event. */
  malformed: number;
};

export type BlockPlace = { height: number; sequencer: number };

type EventWriter = {
  events: RawEvent[];
  move(token: number, movement: Movement, layout: Layout): void;
};

/** Appends a transaction to the block. */
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
  const writer = createEventWriter(draft, facts, context.tokens);

  if (plan.kind === 'moves') renderMoves(context, place, plan, chance, writer);
  if (plan.kind === 'quiet') noise(context, plan, chance, 0, writer);
  if (plan.grant !== null) renderGrant(context, place, plan, writer);
  if (context.malformed > 0 && plan.kind === 'moves' && (chance >>> 9) % 1000 < context.malformed * 1000) {
    const { event, kind } = malformedEvent(chance, actors.hex(plan.sender), actors.hex(place.sequencer));
    const position = draft.events + writer.events.length;
    draft.malformed.push({ block: place.height, position, token: BigInt(event.from_address), kind });
    writer.events.push(event);
  }
  if (plan.kind === 'moves' || plan.kind === 'quiet' || plan.kind === 'fund') {
    if (chance % 3 === 0) {
      const data = [hash, '0x1', '0x1'];
      writer.events.push({
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
    writer.move(plan.feeToken, movement, layout);
    const last = draft.transfers.at(-1);
    if (last !== undefined) last.isFee = true;
  }
  draft.events += writer.events.length;
  draft.txs.push(envelope(context, plan, chance, hash, feeAmount, writer.events));
}

type Facts = Pick<TrueTransfer, 'block' | 'txIndex' | 'txHash' | 'fee' | 'feeToken' | 'reverted'>;

export function createEventWriter(draft: Draft, facts: Facts, chainTokens: readonly Token[]): EventWriter {
  const events: RawEvent[] = [];
  return {
    events,
    move(tokenIndex, movement, layout) {
      const token = item(chainTokens, tokenIndex);
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
  writer: EventWriter,
): void {
  const operator = context.actors.address(plan.sender);
  for (const [index, move] of plan.moves.entries()) {
    noise(context, plan, chance, index, writer);
    const token = context.tokenOfNote(move.note);
    const items = context.contents(token, move.note);
    const movement = {
      from: context.actors.address(move.from),
      to: context.actors.address(move.to),
      operator,
      items,
    };
    const batch = items.length !== 1 || (chance >>> (index + 3)) % 6 === 0;
    writer.move(
      token,
      movement,
      layoutOf(item(context.tokens, token), place.height, chance >>> (index + 7), batch),
    );
  }
}

function renderGrant(context: RenderContext, place: BlockPlace, plan: TxPlan, writer: EventWriter): void {
  if (plan.grant === null) return;
  const { token, to, units } = plan.grant;
  const amount = BigInt(units) * (GRANT_UNITS.get(token) ?? 1n);
  const from = plan.sender === NOBODY ? 0n : context.actors.address(plan.sender);
  const movement = { from, to: context.actors.address(to), operator: from, items: [{ id: null, amount }] };
  writer.move(token, movement, layoutOf(item(tokens, token), place.height, units, false));
  if (plan.kind === 'deposit') {
    const data = [context.actors.hex(to), hexOf(amount), '0x0'];
    writer.events.push({ from_address: bridgeHex, keys: [selectors.deposit_handled], data });
  }
}

const approvers = [STRK, ETH, 2, 3, 4] as const;

/** Adds events that are not transfers. */
function noise(
  context: RenderContext,
  plan: TxPlan,
  chance: number,
  index: number,
  writer: EventWriter,
): void {
  const draw = mix(chance, index, 0x9015e, 0);
  const owner = context.actors.hex(plan.sender);
  if (draw % 5 === 0) {
    const token = item(tokens, item(approvers, (draw >>> 8) % approvers.length));
    const amount = hexOf(BigInt(draw) * 1_000_000_000n);
    const keyed = (draw >>> 5) % 2 === 0;
    writer.events.push({
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
    writer.events.push({ from_address: poolHex, keys: [selectors.Swap], data: [owner, ...amounts, owner] });
    writer.events.push({ from_address: poolHex, keys: [selectors.Sync], data: amounts.slice(0, 4) });
  }
  if (draw % 41 === 0) writer.events.push({ from_address: poolHex, keys: [], data: ['0x1', '0x2', '0x3'] });
}
