import { ACTORS, NOBODY, SEQUENCERS } from './actors.ts';
import { feltOfWords, hexOf, item } from './hash.ts';
import type { RawEvent } from './layouts.ts';
import type { CommittedTx } from './envelope.ts';
import { createEventWriter, type Draft, type RenderContext } from './render.ts';
import { endowmentOf, type Schedule } from './schedule.ts';
import { ETH, layoutOf, type Token } from './tokens.ts';

/** What each holder receives of an ERC-20 in block 0: its notes and, for the two fee tokens, an endowment. */
function mintsOf(schedule: Schedule, token: Token): Map<number, bigint> {
  const sums = new Map<number, bigint>();
  const { first, count } = schedule.notesOf(token.index);
  for (let note = first; note < first + count; note++) {
    const owner = schedule.firstOwner(note);
    if (owner === NOBODY) continue;
    for (const { amount } of schedule.contents(token.index, note))
      sums.set(owner, (sums.get(owner) ?? 0n) + amount);
  }
  const endowment = endowmentOf(token);
  for (let actor = 0; endowment > 0n && actor < ACTORS; actor++)
    sums.set(actor, (sums.get(actor) ?? 0n) + endowment);
  return sums;
}

/** Block 0: one transaction without a fee for each token, which mints the initial balances. */
export function renderGenesis(
  context: RenderContext,
  schedule: Schedule,
  hashOf: (index: number) => string,
): Draft {
  const draft: Draft = { txs: [], transfers: [], malformed: [], events: 0 };
  const sender = context.actors.hex(SEQUENCERS);
  const feeToken = item(schedule.tokens.list, ETH).address;
  for (const token of schedule.tokens.list) {
    const sums = [...mintsOf(schedule, token)].sort(([a], [b]) => a - b);
    if (sums.length === 0) continue;
    const txIndex = draft.txs.length;
    const hash = hashOf(txIndex);
    const facts = { block: 0, txIndex, txHash: hash, fee: 0n, feeToken, reverted: false };
    const writer = createEventWriter(draft, facts, schedule.tokens.list);
    for (const [holder, amount] of sums) {
      const to = context.actors.address(holder);
      const movement = { from: 0n, to, operator: 0n, items: [{ id: null, amount }] };
      writer.move(token.index, movement, layoutOf(token, 0, holder, false));
    }
    draft.events += writer.events.length;
    draft.txs.push(genesisTx(context.seed, txIndex, hash, sender, token.hex, writer.events));
  }
  return draft;
}

function genesisTx(
  seed: number,
  index: number,
  hash: string,
  sender: string,
  token: string,
  events: RawEvent[],
): CommittedTx {
  return {
    hash,
    events,
    transaction: {
      type: 'INVOKE',
      version: '0x1',
      signature: [feltOfWords(seed, index, 0, 1), feltOfWords(seed, index, 0, 2)],
      nonce: hexOf(BigInt(index)),
      sender_address: sender,
      calldata: ['0x1', token, '0x0', '0x0'],
      max_fee: '0x0',
    },
    receipt: {
      type: 'INVOKE',
      transaction_hash: hash,
      actual_fee: { amount: '0x0', unit: 'WEI' },
      execution_status: 'SUCCEEDED',
      messages_sent: [],
      events,
      execution_resources: { l1_gas: 0, l2_gas: 0, l1_data_gas: 0 },
    },
  };
}
