import { createWriteStream } from 'node:fs';
import { mkdir, open, readFile, rename } from 'node:fs/promises';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';

import { exportBody } from '../../../api/export/body.ts';
import type { FileSummary } from '../../../api/export/body.ts';
import { openExport } from '../../../api/export/open.ts';
import type { ExportReading } from '../../../api/export/open.ts';
import { chainStatusRow } from '../../../projections/chain-status/queries.ts';
import { runStart } from '../../../projections/indexed-blocks/queries.ts';
import { exportManifest } from '../../../schemas/api/exports.ts';
import type { ExportFile, ExportManifest } from '../../../schemas/api/exports.ts';
import { AppError } from '../../../schemas/errors.ts';

/** Folder of the files within that of the manifest. */
const FILES = 'files';

/**
 * Writes a Parquet file for every `heights` heights that are accepted on L1 and indexed without a gap, and `manifest.json`,
 * which lists them. Files that are listed stay as they are; an interrupted run leaves no part of a file in the list.
 *
 * @param onFile called with each file that was written
 * @throws INVALID if the folder has files of another number of heights
 */
export async function buildExportFiles(
  reading: ExportReading,
  { folder, heights }: { readonly folder: string; readonly heights: number },
  onFile: (file: ExportFile) => void,
): Promise<void> {
  const { pool, servedBuilds, clickhouse, signal } = reading;
  await mkdir(join(folder, FILES), { recursive: true });
  const manifest = await readManifest(folder, heights);
  const known = new Set(manifest.files.map(({ from_block: from }) => from));
  const { l1_height: l1Height } = await chainStatusRow(pool, (await servedBuilds()).schema('chain-status'));
  for (let from = 0; from + heights - 1 <= (l1Height ?? -1); from += heights) {
    signal.throwIfAborted();
    const to = from + heights - 1;
    if (known.has(from)) continue;
    const start = await runStart(clickhouse, await servedBuilds(), to);
    if (start === null || start > from) continue;
    const file = await writeFile(reading, folder, { from, to });
    manifest.files.push(file);
    manifest.files.sort((a, b) => a.from_block - b.from_block);
    await replace(join(folder, 'manifest.json'), JSON.stringify(manifest, null, 2));
    onFile(file);
  }
}

async function readManifest(folder: string, heights: number): Promise<ExportManifest> {
  let text: string;
  try {
    text = await readFile(join(folder, 'manifest.json'), 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return { heights, files: [] };
    throw error;
  }
  const manifest = exportManifest.parse(JSON.parse(text));
  if (manifest.heights === heights) return manifest;
  throw new AppError('INVALID', `The folder has files of ${manifest.heights} heights: use another folder`);
}

async function writeFile(
  reading: ExportReading,
  folder: string,
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
  } as const;
  const { file, rows } = await openExport(reading, { search, format: 'parquet' });
  const summary = Promise.withResolvers<FileSummary>();
  const body = exportBody({
    file,
    format: 'parquet',
    rows,
    coding: 'identity',
    onEnd: async (whole) => summary.resolve(whole),
  });
  const url = `${FILES}/transfers-${from}-${to}.parquet`;
  const part = join(folder, `${url}.part`);
  await pipeline(body, createWriteStream(part, { flush: true }), { signal: reading.signal });
  await rename(part, join(folder, url));
  return { url, from_block: from, to_block: to, ...(await summary.promise) };
}

/** Replaces a file in one step: a reader sees the old text or the new one. */
async function replace(path: string, text: string): Promise<void> {
  const part = await open(`${path}.part`, 'w');
  try {
    await part.writeFile(text);
    await part.sync();
  } finally {
    await part.close();
  }
  await rename(`${path}.part`, path);
}
