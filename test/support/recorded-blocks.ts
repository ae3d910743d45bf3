import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { resolve } from 'node:path';

/** Folder beside the repository of blocks recorded from real chains, each a result of `starknet_getBlockWithReceipts`. */
export const RECORDED_BLOCKS = resolve(import.meta.dirname, '../../../shared/blocks');

/** Begins the title of a test that is skipped without the recorded blocks; '' if they are there. */
export const whySkipped = existsSync(RECORDED_BLOCKS) ? '' : 'SKIPPED: ../shared/blocks is absent: ';

export const recordedFiles: readonly string[] =
  whySkipped === ''
    ? readdirSync(RECORDED_BLOCKS)
        .filter((name) => name.endsWith('.json'))
        .toSorted()
    : [];

/** Reads a recorded block anew, so that a test may change it. */
export const readRecordedBlock = (file = 'sepolia-3100000.json') =>
  JSON.parse(readFileSync(resolve(RECORDED_BLOCKS, file), 'utf8'));
