import { once } from 'node:events';
import { createWriteStream, renameSync, rmSync } from 'node:fs';
import { pipeline } from 'node:stream/promises';

import { Option } from 'commander';
import type { Command } from 'commander';

import { exportCsv, exportJson } from '../operator/catalogue/export.ts';
import { FILE_KINDS } from '../operator/catalogue/formats.ts';
import type { FileKind } from '../operator/catalogue/formats.ts';
import { importFile } from '../operator/catalogue/import.ts';
import type { ImportFile, ImportOutcome, ImportProgress } from '../operator/catalogue/import.ts';
import { csvReader, readJson } from '../operator/catalogue/read-file.ts';
import { acceptTokenList } from '../../../pipeline/observe/token-list.ts';
import { servedBuilds } from '../../../projections/served.ts';
import { AppError } from '../../../schemas/errors.ts';
import type { Logger } from '../../log.ts';
import { required } from '../../config.ts';
import { inTransaction } from '../../postgres/client.ts';
import { asOperator } from './as-operator.ts';
import { commandConfig } from '../command-config.ts';
import { openCommandPool, withConnections, withStores } from '../connect.ts';
import { openReader } from '../roles/observe-prices.ts';
import { showProgress } from './progress.ts';

/** `tds catalogue`: imports and exports the catalogue. */
export function catalogueCommand(program: Command, log: Logger, say: (line: string) => void): void {
  const catalogue = program
    .command('catalogue')
    .description('manage the catalogue: categories, dApps, ads, domains, class hashes, wallets, tokens');
  importCommand(catalogue, log, say);
  exportCommand(catalogue, log);
  acceptTokenListCommand(catalogue, log, say);
}

function importCommand(catalogue: Command, log: Logger, say: (line: string) => void): void {
  catalogue
    .command('import')
    .description(
      'import a JSON object with an array of records per kind, or CSV of one kind; one transaction applies all records, ' +
        'except tokens, which are published afterwards (import again if it was killed); idempotent; records are matched ' +
        'by their identifier (slug, key, domain, address, ...)',
    )
    .argument('<file>')
    .addOption(
      new Option('--kind <kind>', 'kind of a CSV file, or the only kind to import from a JSON file').choices(
        FILE_KINDS,
      ),
    )
    .addOption(formatOption('format of the file (default: by file extension)'))
    .option('--dry-run', 'print the changes without making them', false)
    .option('--json', 'print the result as JSON', false)
    .action(async (path: string, options: FileOptions & { dryRun: boolean; json: boolean }) => {
      const file = fileToImport(path, options);
      const progress = showProgress<ImportProgress>({
        what: 'import',
        reading: 'sending',
        unit: 'records',
        quiet: options.json,
        afterMs: 1000,
      });
      const outcome = await asOperator(commandConfig(process.env), log, (deps) =>
        importFile({ ...deps, now: Date.now }, file, {
          isDryRun: options.dryRun,
          onProgress: progress.show,
        }),
      ).finally(() => progress.end());
      if (options.json) say(JSON.stringify(asJson(outcome, options.dryRun), null, 2));
      else if (outcome.isGood) for (const line of sentences(outcome, options.dryRun)) say(line);
      if (outcome.isGood) return;
      process.exitCode = 1;
      if (!options.json) process.stderr.write(`${refusal(path, outcome)}\n`);
    });
}

function exportCommand(catalogue: Command, log: Logger): void {
  catalogue
    .command('export')
    .description('export the catalogue in the format that import reads')
    .argument('[file]', 'target file (default: standard output)')
    .addOption(new Option('--kind <kind>', 'only this kind (default: all)').choices(FILE_KINDS))
    .addOption(
      formatOption('format of the file; CSV holds one kind (default: by file extension, otherwise json)'),
    )
    .action(async (path: string | undefined, { kind, format }: FileOptions) => {
      const isCsv = formatOf(format, path) === 'csv';
      if (isCsv && kind === undefined)
        throw new AppError('INVALID', 'CSV holds one kind: specify it with --kind');
      await writeWhole(path, async (write) => {
        await withConnections(commandConfig(process.env), log, async (connecting) => {
          const pool = openCommandPool(connecting, 'tds-export', 1);
          await inTransaction(pool, async (db) => {
            await db.query('SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY');
            const deps = { db, served: await servedBuilds(db) };
            await write(
              isCsv && kind !== undefined
                ? exportCsv(deps, kind)
                : exportJson(deps, kind === undefined ? FILE_KINDS : [kind]),
            );
          });
        });
      });
    });
}

function acceptTokenListCommand(catalogue: Command, log: Logger, say: (line: string) => void): void {
  catalogue
    .command('accept-token-list')
    .description(
      'read the token list once and publish its changes, however many tokens it has lost; clears the alarm tokens.list',
    )
    .action(async () => {
      const { changed, unlisted } = await withStores(
        commandConfig(process.env),
        'tds-token-list',
        log,
        async ({ config, pool, kafka, releasers }) => {
          const url = required(config, 'tokenListUrl');
          const reader = openReader(config);
          releasers.push('token list', () => reader.close());
          const publisher = kafka.publisher();
          releasers.push('publisher', () => publisher.close());
          return await acceptTokenList({ pool, publisher, log, now: Date.now }, { reader, url });
        },
      );
      say(`The token list is accepted: ${changed} listings are new or changed, ${unlisted} tokens are gone.`);
    });
}

interface FileOptions {
  readonly kind?: FileKind;
  readonly format?: 'json' | 'csv';
}

function formatOption(description: string): Option {
  return new Option('--format <format>', description).choices(['json', 'csv']);
}

function formatOf(format: FileOptions['format'], path: string | undefined): 'json' | 'csv' {
  return format ?? (path?.toLowerCase().endsWith('.csv') === true ? 'csv' : 'json');
}

function fileToImport(path: string, { kind, format }: FileOptions): ImportFile {
  if (formatOf(format, path) === 'json') return { path, read: readJson, kind };
  if (kind === undefined) throw new AppError('INVALID', 'CSV holds one kind: specify it with --kind');
  return { path, read: csvReader(kind), kind };
}

/** Writes a file atomically: it is complete, or unchanged. */
async function writeWhole(
  path: string | undefined,
  work: (write: (pieces: AsyncIterable<string>) => Promise<void>) => Promise<void>,
): Promise<void> {
  if (path === undefined)
    return await work(async (pieces) => await pipeline(pieces, process.stdout, { end: false }));
  const part = `${path}.${process.pid}.part`;
  const out = createWriteStream(part);
  let isSourceBroken = false;
  async function* watched(pieces: AsyncIterable<string>): AsyncIterable<string> {
    try {
      yield* pieces;
    } catch (error) {
      isSourceBroken = true;
      throw error;
    }
  }
  try {
    await once(out, 'open');
    await work(async (pieces) => await pipeline(watched(pieces), out));
    renameSync(part, path);
  } catch (cause) {
    out.destroy();
    rmSync(part, { force: true });
    // An error of a store may name a system call, too.
    const isOfFile =
      cause instanceof Error && ('path' in cause || (cause === out.errored && !isSourceBroken));
    if (!isOfFile) throw cause;
    throw new AppError('INVALID', `Cannot write ${path}: ${cause.message}`, { cause });
  }
}

function asJson(outcome: ImportOutcome, isDryRun: boolean): object {
  if (outcome.isGood) return { dry_run: isDryRun, counts: outcome.counts };
  return { dry_run: isDryRun, error_count: outcome.faultCount, errors: outcome.faults };
}

function sentences({ counts }: Extract<ImportOutcome, { isGood: true }>, isDryRun: boolean): string[] {
  const kinds = Object.entries(counts).map(
    ([kind, { created, changed, unchanged }]) =>
      `${kind}: ${created} created, ${changed} changed, ${unchanged} unchanged`,
  );
  if (kinds.length === 0) return ['The file has no records.'];
  return isDryRun ? ['Dry run, nothing is changed:', ...kinds] : kinds;
}

function refusal(path: string, { faults, faultCount }: Extract<ImportOutcome, { isGood: false }>): string {
  const lines = faults.map(({ line, text }) => `  line ${line}: ${text}`);
  const more = faultCount > faults.length ? [`  and ${faultCount - faults.length} more`] : [];
  const count = faultCount === 1 ? '1 error' : `${faultCount} errors`;
  return [`${path}: ${count}; nothing is changed.`, ...lines, ...more].join('\n');
}
