import { Readable } from 'node:stream';

import { exportBody } from '../../../api/export/body.ts';
import type { FileSummary } from '../../../api/export/body.ts';
import { MANIFEST, readManifest } from '../../../api/export/manifest.ts';
import { openExport } from '../../../api/export/open.ts';
import type { ExportReading } from '../../../api/export/open.ts';
import { finalHeight } from '../../../projections/chain-status/queries.ts';
import { runStart } from '../../../projections/indexed-blocks/queries.ts';
import type { ExportFile } from '../../../schemas/api/exports.ts';
import { AppError } from '../../../schemas/errors.ts';
import type { ObjectStore } from '../../object-store/store.ts';

export interface ExportTarget {
  readonly store: ObjectStore;
  /** Of a file. */
  readonly heights: number;
  /** Throws where another process may write files by now: it would drop files from the list. */
  readonly assertHeld: () => Promise<void>;
}

/**
 * Writes a Parquet file for every `heights` heights that are accepted on L1 and indexed without a gap, and `manifest.json`,
 * which lists them. Files that are listed stay as they are; an interrupted run leaves no part of a file in the list.
 *
 * @param onFile called with each file that was written
 * @returns the height accepted on L1 when it began; null: none
 * @throws INVALID if the store has files of another number of heights
 */
export async function buildExportFiles(
  reading: ExportReading,
  { store, heights, assertHeld }: ExportTarget,
  onFile: (file: ExportFile) => void,
): Promise<number | null> {
  const { pool, servedBuilds, clickhouse, signal } = reading;
  const manifest = (await readManifest(store, signal)) ?? { heights, files: [] };
  if (manifest.heights !== heights)
    throw new AppError(
      'INVALID',
      `The target holds files of ${manifest.heights} heights each: use --heights ${manifest.heights}, or another target`,
    );
  const known = new Set(manifest.files.map(({ from_block: from }) => from));
  const final = await finalHeight(pool, (await servedBuilds()).schema('chain-status'));
  for (let from = 0; from + heights - 1 <= (final ?? -1); from += heights) {
    signal.throwIfAborted();
    const to = from + heights - 1;
    if (known.has(from)) continue;
    const start = await runStart(clickhouse, await servedBuilds(), to);
    if (start === null || start > from) continue;
    const file = await writeFile(reading, { store, assertHeld }, { from, to });
    manifest.files.push(file);
    manifest.files.sort((a, b) => a.from_block - b.from_block);
    const text = JSON.stringify(manifest, null, 2);
    await assertHeld();
    await store.write(MANIFEST, Readable.from([text], { objectMode: false }), signal);
    onFile(file);
  }
  return final;
}

async function writeFile(
  reading: ExportReading,
  { store, assertHeld }: Pick<ExportTarget, 'store' | 'assertHeld'>,
  { from, to }: { readonly from: number; readonly to: number },
): Promise<ExportFile> {
  const search = {
    felts: {},
    block: null,
    fromBlock: from,
    toBlock: to,
    startTime: null,
    endTime: null,
    order: 'asc',
    asOf: null,
  } as const;
  const { file, rows } = await openExport(reading, { search, format: 'parquet', maxPrices: Infinity });
  const summary = Promise.withResolvers<FileSummary>();
  const body = exportBody({
    file,
    format: 'parquet',
    rows,
    coding: 'identity',
    // Another process may have listed the file by now: a whole one would replace it.
    async onEnd(whole) {
      await assertHeld();
      summary.resolve(whole);
    },
  });
  const url = `files/transfers-${from}-${to}.parquet`;
  await store.write(url, body, reading.signal);
  return { url, from_block: from, to_block: to, ...(await summary.promise) };
}
