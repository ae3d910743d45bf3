import { expect, test } from 'vitest';

import { areNewInOpenRange } from '../../../projections/chain-rows.ts';
import { chainBlocks } from '../../../projections/streams.ts';
import { chainBlocksMessage } from '../../../schemas/messages/chain-blocks.ts';
import type { ChainBlocksMessage } from '../../../schemas/messages/chain-blocks.ts';
import { accepted, busyBlock, reverted } from '../../support/chain-messages.ts';

/** Whether the sums of the range of these messages can be made after the blocks are announced. */
const isLate = (...messages: ChainBlocksMessage[]): boolean =>
  areNewInOpenRange(
    messages.map((message, offset) =>
      chainBlocks.touched(chainBlocks.item(chainBlocksMessage.parse(message), { partition: 0, offset })),
    ),
  );
const live = (height: number): ChainBlocksMessage => accepted(busyBlock(height, 1), 1, 'live');

test.each([
  ['a new head', [live(2050)], true],
  ['new heads of one range', [live(2048), live(2049)], true],
  // The next block makes readers use the sums of this one's range.
  ['the last block of a range', [live(2047)], false],
  ['new heads of two ranges', [live(2047), live(2048)], false],
  ['a block of a backfill', [accepted(busyBlock(2050, 1), 1, 'backfill-0')], false],
  ['a new head and a reverted block', [reverted(busyBlock(2050, 1), 2, 'live'), live(2050)], false],
  ['a block that was published again', [{ ...live(2050), cause: 'repair' as const }], false],
  ['a block published after a crash', [{ ...live(2050), cause: 'replay' as const }], false],
  ['a block of a reorg', [{ ...live(2050), cause: 'reorg' as const }], false],
])('%s', (_, messages, expected) => expect(isLate(...messages)).toBe(expected));
