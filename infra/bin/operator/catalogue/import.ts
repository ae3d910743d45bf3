import { randomUUID } from 'node:crypto';

import { z } from 'zod';

import { pollUntil } from '../../../retry.ts';
import type { Publisher } from '../../../kafka/client.ts';
import { compareRecords, unknownCategories } from '../../../../projections/catalogue/queries.ts';
import type { RecordCounts } from '../../../../projections/catalogue/queries.ts';
import { tokensByAddress } from '../../../../projections/tokens/queries.ts';
import type { TokenRow } from '../../../../projections/tokens/queries.ts';
import { CATALOGUE_KINDS, MAX_RECORDS_PER_PART, slug } from '../../../../schemas/catalogue.ts';
import type { CatalogueKind, CatalogueRecord, catalogueRecords } from '../../../../schemas/catalogue.ts';
import { AppError } from '../../../../schemas/errors.ts';
import { topics } from '../../../../schemas/topics.ts';
import { accepted } from '../accounts.ts';
import type { OperatorDeps } from '../accounts.ts';
import { Faults, checkRecords } from './check.ts';
import type { Checked, Fault } from './check.ts';
import type { FileKind, TokenRecord } from './formats.ts';
import type { ReadFile } from './read-file.ts';

export interface ImportDeps extends OperatorDeps {
  readonly publisher: Pick<Publisher, 'publish'>;
  /** Unix milliseconds. */
  readonly now: () => number;
}

export interface ImportFile {
  readonly path: string;
  readonly read: ReadFile;
  /** Import only records of this kind. */
  readonly kind?: FileKind | undefined;
}

export interface ImportProgress {
  readonly phase: 'checking' | 'sending' | 'comparing' | 'applying' | 'tokens';
  /** Records. */
  readonly read: number;
  readonly total: number;
}
type OnProgress = (progress: ImportProgress) => void;

export type ImportCounts = Partial<Record<FileKind, RecordCounts>>;

/** What an import changed or would change; or the errors of the file, and nothing was changed. */
export type ImportOutcome =
  | { readonly isGood: true; readonly counts: ImportCounts }
  | { readonly isGood: false; readonly faults: readonly Fault[]; readonly faultCount: number };

/** Characters of the records in one part; far below the size limit of a message. */
const PART_CHARACTERS = 200_000;
/** Parts published concurrently. */
const PARTS_AT_ONCE = 4;
const TOKENS_AT_ONCE = 500;
/** Longest time for the projector to apply a large import. */
const APPLY_TIMEOUT_MS = 1_800_000;

/**
 * Imports an operator's file atomically: validates all of it, publishes it in parts, and then one command applies all parts.
 * Nothing changes if the process dies before that command. Tokens, which have a topic of their own, follow. Importing the
 * same file again changes nothing. A dry run only reads what would change.
 */
export async function importFile(
  deps: ImportDeps,
  file: ImportFile,
  { isDryRun = false, onProgress = () => {} }: { isDryRun?: boolean; onProgress?: OnProgress } = {},
): Promise<ImportOutcome> {
  const checked = await checkFile(deps, file, onProgress);
  if ('isGood' in checked) return checked;
  const { total, hasTokens } = checked;
  const count = isDryRun ? compareWithStored : applyRecords;
  const counts = await count(deps, file, (phase, read) => onProgress({ phase, read, total }));
  if (!hasTokens) return { isGood: true, counts };
  onProgress({ phase: 'tokens', read: total, total });
  const tokens = await listTokens(deps, recordsAgain(file), isDryRun);
  return { isGood: true, counts: { ...counts, ...tokens } };
}

type OnRead = (phase: ImportProgress['phase'], read: number) => void;

async function applyRecords(deps: ImportDeps, file: ImportFile, onRead: OnRead): Promise<ImportCounts> {
  const importId = randomUUID();
  let parts = 0;
  let sent = 0;
  for await (const batch of batchesOf(partsOf(recordsAgain(file)), PARTS_AT_ONCE)) {
    onRead('sending', sent);
    await Promise.all(
      batch.map(async (records, at) => {
        const body = { import_id: importId, part: parts + at, records };
        await accepted(deps, { type: 'catalogue.part', actor: 'operator', body });
      }),
    );
    parts += batch.length;
    sent += batch.reduce((sum, records) => sum + sizeOf(records), 0);
  }
  if (parts === 0) return {};
  onRead('applying', sent);
  const body = { import_id: importId, parts };
  return await accepted(deps, {
    type: 'catalogue.import',
    actor: 'operator',
    body,
    timeoutMs: APPLY_TIMEOUT_MS,
  });
}

async function compareWithStored(deps: ImportDeps, file: ImportFile, onRead: OnRead): Promise<ImportCounts> {
  const counts: ImportCounts = {};
  let read = 0;
  const schema = (await deps.servedBuilds()).schema('catalogue');
  for await (const records of partsOf(recordsAgain(file))) {
    onRead('comparing', read);
    for (const kind of CATALOGUE_KINDS) {
      const some: readonly CatalogueRecord<CatalogueKind>[] = records[kind] ?? [];
      if (some.length > 0) addCounts(counts, kind, await compareRecords(deps.pool, schema, kind, some));
    }
    read += sizeOf(records);
  }
  return counts;
}

function addCounts(counts: ImportCounts, kind: FileKind, more: RecordCounts): void {
  const sum = counts[kind] ?? { created: 0, changed: 0, unchanged: 0 };
  counts[kind] = {
    created: sum.created + more.created,
    changed: sum.changed + more.changed,
    unchanged: sum.unchanged + more.unchanged,
  };
}

/** Validates a whole file; returns its number of records or its errors. */
async function checkFile(
  { pool, servedBuilds }: ImportDeps,
  file: ImportFile,
  onProgress: OnProgress,
): Promise<
  { readonly total: number; readonly hasTokens: boolean } | Extract<ImportOutcome, { isGood: false }>
> {
  const faults = new Faults();
  /** Lines that name a category which is not in the file. */
  const named: { kind: FileKind; line: number; slug: string }[] = [];
  const own = new Set<string>();
  /** Records of other kinds. */
  const left = new Set<FileKind>();
  let total = 0;
  let hasTokens = false;
  const look = ({ kind, line, record }: { kind: FileKind; line: number; record: unknown }): void => {
    if (kind !== 'categories' && kind !== 'dapps' && kind !== 'ads') return;
    const { slug: name, category } = textsOf.safeParse(record).data ?? {};
    if (kind !== 'categories' && category !== undefined) named.push({ kind, line, slug: category });
    if (kind === 'categories' && name !== undefined) own.add(name);
  };
  for await (const one of checkRecords(ofKind(file, left), faults, look)) {
    hasTokens ||= one.kind === 'tokens';
    total += 1;
    onProgress({ phase: 'checking', read: total, total });
  }
  const others = named.filter(({ slug }) => !own.has(slug));
  const asked = [...new Set(others.map(({ slug }) => slug))];
  const unknown = new Set(
    asked.length === 0
      ? []
      : await unknownCategories(pool, (await servedBuilds()).schema('catalogue'), asked),
  );
  for (const { kind, line, slug } of others) {
    if (unknown.has(slug)) faults.add(line, `${kind}.category: no category has the slug ${slug}.`);
  }
  if (faults.count === 0) {
    if (total > 0 || left.size === 0) return { total, hasTokens };
    throw new AppError('INVALID', `${file.path} holds no ${file.kind}, but ${[...left].join(', ')}`);
  }
  const shown = faults.listed.toSorted((a, b) => a.line - b.line);
  return { isGood: false, faults: shown, faultCount: faults.count };
}

async function* ofKind({ path, read, kind }: ImportFile, left = new Set<FileKind>()): ReturnType<ReadFile> {
  for await (const found of read(path)) {
    if ('fault' in found || kind === undefined || found.kind === kind) yield found;
    else left.add(found.kind);
  }
}

/** Fields of a record that are looked up even if others are invalid. */
const textsOf = z.object({
  slug: z.string().optional().catch(undefined),
  category: slug.optional().catch(undefined),
});

/** The records of a file that was validated before. Throws CONFLICT if it has become invalid. */
async function* recordsAgain(file: ImportFile): AsyncIterable<Checked> {
  const faults = new Faults();
  yield* checkRecords(ofKind(file), faults);
  if (faults.count > 0)
    throw new AppError(
      'CONFLICT',
      `${file.path} changed while it was read, and may be applied in part: import it again`,
    );
}

type Part = z.infer<typeof catalogueRecords>;

const sizeOf = (part: Part): number => Object.values(part).reduce((sum, records) => sum + records.length, 0);

/** Splits the records of a file into the parts that commands carry. */
async function* partsOf(records: AsyncIterable<Checked>): AsyncIterable<Part> {
  let part: Partial<Record<CatalogueKind, unknown[]>> = {};
  let count = 0;
  let characters = 0;
  for await (const { kind, record } of records) {
    if (kind === 'tokens') continue;
    const size = JSON.stringify(record).length;
    if (count > 0 && (count === MAX_RECORDS_PER_PART || characters + size > PART_CHARACTERS)) {
      yield part as Part;
      [part, count, characters] = [{}, 0, 0];
    }
    (part[kind] ??= []).push(record);
    count += 1;
    characters += size;
  }
  if (count > 0) yield part as Part;
}

async function* batchesOf<T>(items: AsyncIterable<T>, size: number): AsyncIterable<T[]> {
  let batch: T[] = [];
  for await (const item of items) {
    batch.push(item);
    if (batch.length < size) continue;
    yield batch;
    batch = [];
  }
  if (batch.length > 0) yield batch;
}

/** Publishes the tokens that the file changes, or only counts them. */
async function listTokens(
  deps: ImportDeps,
  records: AsyncIterable<Checked>,
  isDryRun: boolean,
): Promise<ImportCounts> {
  const counts: ImportCounts = {};
  for await (const batch of batchesOf(tokensOf(records), TOKENS_AT_ONCE)) {
    const known = await knownTokens(deps, batch);
    const news = batch.filter((token) => differs(token, known.get(token.address)));
    const created = batch.filter(({ address }) => !known.has(address)).length;
    const changed = news.length - created;
    addCounts(counts, 'tokens', { created, changed, unchanged: batch.length - news.length });
    if (!isDryRun && news.length > 0) await publishTokens(deps, news);
  }
  return counts;
}

async function* tokensOf(records: AsyncIterable<Checked>): AsyncIterable<TokenRecord> {
  for await (const one of records) if (one.kind === 'tokens') yield one.record;
}

async function knownTokens(
  { pool, servedBuilds }: ImportDeps,
  tokens: readonly TokenRecord[],
): Promise<ReadonlyMap<string, TokenRow>> {
  const schema = (await servedBuilds()).schema('tokens');
  return await tokensByAddress(
    pool,
    schema,
    tokens.map(({ address }) => address),
  );
}

const FLAGS = ['verified', 'common', 'public', 'hidden', 'logo'] as const;

function differs(token: TokenRecord, known: TokenRow | undefined): boolean {
  return (
    known === undefined || FLAGS.some((flag) => token[flag] !== undefined && token[flag] !== known[flag])
  );
}

const TOKENS_TIMEOUT_MS = 30_000;

/** Publishes tokens and waits until the projection has stored them. */
async function publishTokens(deps: ImportDeps, tokens: readonly TokenRecord[]): Promise<void> {
  const observedAt = deps.now();
  await deps.publisher.publish(
    topics.tokens,
    tokens.map(({ address, ...flags }) => ({
      key: address,
      value: { type: 'token.listed', v: 1, token: address, ...flags, observed_at: observedAt },
    })),
  );
  const areStored = async (): Promise<boolean> => {
    const known = await knownTokens(deps, tokens);
    return !tokens.some((token) => differs(token, known.get(token.address)));
  };
  if (await pollUntil(areStored, (stored) => stored, { everyMs: 100, withinMs: TOKENS_TIMEOUT_MS })) return;
  throw new AppError('COMMAND_TIMEOUT', 'The tokens are published but not stored yet', { retryable: true });
}
