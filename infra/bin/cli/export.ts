import type { Command } from 'commander';

import { servedBuilds } from '../../../projections/served.ts';
import type { ExportFile } from '../../../schemas/api/exports.ts';
import type { Logger } from '../../log.ts';
import { commandConfig } from '../command-config.ts';
import { withStores } from '../connect.ts';
import { openObjectStore } from '../../object-store/store.ts';
import { withAdvisoryLocks } from '../../postgres/advisory-lock.ts';
import { buildExportFiles } from '../operator/export-files.ts';
import { positiveInteger } from './arguments.ts';
import { withInterrupt } from './progress.ts';

const HEIGHTS = 100_000;

/** `tds export`: writes the transfers into files. */
export function exportCommand(program: Command, log: Logger, say: (line: string) => void): void {
  program
    .command('export')
    .description('write transfers into files')
    .command('build')
    .description(
      'write a Parquet file for every range of heights that is accepted on L1 and indexed, and manifest.json, which lists ' +
        'the files with their SHA-256; listed files are not rewritten. The API serves the files in EXPORT_FILES',
    )
    .requiredOption(
      '--to <folder>',
      'folder to write to, or s3://BUCKET/PREFIX; for S3, set the AWS_ variables of the AWS tools (AWS_ENDPOINT_URL_S3 for another store)',
    )
    .option('--heights <n>', 'heights of a file', positiveInteger, HEIGHTS)
    .action(async ({ to, heights }: { to: string; heights: number }) => {
      const store = await openObjectStore(to);
      let files = 0;
      const onFile = ({ url, rows, bytes }: ExportFile): void => {
        files += 1;
        say(`${url}: ${rows} transfers, ${bytes} bytes`);
      };
      const busy = (): string => 'Another process is writing files';
      const final = await withStores(commandConfig(process.env), 'tds-export', log, ({ pool, clickhouse }) =>
        withAdvisoryLocks(pool, ['export build'], busy, (assertHeld) =>
          withInterrupt(async (signal) => {
            const reading = { pool, clickhouse, servedBuilds: () => servedBuilds(pool), signal };
            return await buildExportFiles(reading, { store, heights, assertHeld }, onFile);
          }),
        ),
      );
      if (files > 0) return say(`${files} file${files === 1 ? '' : 's'} written.`);
      const reached = final === null ? 'no block is' : `blocks up to ${final} are`;
      say(`No new range of ${heights} heights is complete: ${reached} accepted on L1.`);
    });
}
