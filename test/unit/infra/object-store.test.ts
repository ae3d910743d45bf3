import { randomBytes } from 'node:crypto';
import { mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';

import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';

import { createS3Store } from '../../../infra/object-store/s3.ts';
import { openObjectStore } from '../../../infra/object-store/store.ts';
import type { ObjectStore } from '../../../infra/object-store/store.ts';
import { MISSING_BUCKET, startSimulatedS3 } from '../../support/s3.ts';
import type { SimulatedS3 } from '../../support/s3.ts';

let s3: SimulatedS3;
const folder = mkdtempSync(join(tmpdir(), 'tds-objects-'));

beforeAll(async () => {
  s3 = await startSimulatedS3();
  for (const [name, value] of Object.entries(s3.env)) vi.stubEnv(name, value);
});
afterAll(async () => {
  vi.unstubAllEnvs();
  await s3.close();
  rmSync(folder, { recursive: true, force: true });
});

const { signal } = new AbortController();
/** More than two parts of an upload. */
const large = randomBytes(40 * 1024 * 1024);
const chunks = (bytes: Buffer): Buffer[] =>
  Array.from({ length: Math.ceil(bytes.length / 65_536) }, (_, i) =>
    bytes.subarray(i * 65_536, (i + 1) * 65_536),
  );
const bodyOf = (bytes: Buffer): Readable => Readable.from(chunks(bytes), { objectMode: false });

it.each(['s3://', 's3:///prefix', 'gs://bucket/prefix', 'S3://bucket'])(
  'a store is not opened at %s',
  async (location) => {
    await expect(openObjectStore(location)).rejects.toThrow(
      `Not a folder or s3://BUCKET/PREFIX: ${location}`,
    );
  },
);

describe.each(['folder', 'bucket'])('a %s', (kind) => {
  let store: ObjectStore;
  const leftovers = (): number =>
    kind === 'folder'
      ? readdirSync(join(folder, 'of'), { recursive: true }).filter((name) => String(name).endsWith('.part'))
          .length
      : s3.openUploads();
  beforeAll(async () => {
    store = await openObjectStore(kind === 'folder' ? folder : 's3://bucket/prefix/');
  });

  it('has an object once it is whole, and reads parts of it', async () => {
    expect([await store.size('of/large', signal), await store.text('of/large', signal)]).toEqual([
      null,
      null,
    ]);
    await store.write('of/large', bodyOf(large), signal);
    expect(await store.size('of/large', signal)).toBe(large.length);
    const [start, end] = [17_000_000, 34_000_000];
    const part = await buffer(await store.read('of/large', { start, end }, signal));
    expect(part.equals(large.subarray(start, end + 1))).toBe(true);
    expect(leftovers()).toBe(0);
  });

  it('replaces an object', async () => {
    for (const text of ['first', 'second']) await store.write('of/text', bodyOf(Buffer.from(text)), signal);
    expect(await store.text('of/text', signal)).toBe('second');
  });

  it('keeps the old object where the new one breaks off or is given up', async () => {
    await store.write('of/kept', bodyOf(Buffer.from('old')), signal);
    const broken = Readable.from(
      (function* () {
        yield* chunks(large);
        throw new Error('broken off');
      })(),
      { objectMode: false },
    );
    await expect(store.write('of/kept', broken, signal)).rejects.toThrow('broken off');
    await expect(store.write('of/kept', bodyOf(large), AbortSignal.abort())).rejects.toThrow();
    const given = new AbortController();
    const late = Readable.from(
      (function* () {
        for (const [i, chunk] of chunks(large).entries()) {
          if (i === 600) given.abort();
          yield chunk;
        }
      })(),
      { objectMode: false },
    );
    await expect(store.write('of/kept', late, given.signal)).rejects.toThrow();
    expect(await store.text('of/kept', signal)).toBe('old');
    if (kind === 'bucket') await vi.waitFor(() => expect(leftovers()).toBe(0));
  });
});

it('a folder keeps what was written while another writer of the same object was slow', async () => {
  const store = await openObjectStore(folder);
  const [began, may] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const slow = Readable.from(
    (async function* () {
      yield Buffer.alloc(large.length);
      began.resolve();
      await may.promise;
      yield Buffer.alloc(large.length);
    })(),
    { objectMode: false },
  );
  const first = store.write('of/both', slow, signal);
  first.catch(() => {});
  await began.promise;
  await store.write('of/both', bodyOf(large), signal);
  may.resolve();
  await expect(first).rejects.toThrow('ENOENT');
  expect(readFileSync(join(folder, 'of/both')).equals(large)).toBe(true);
});

it('a read from a bucket ends with its reader, also while it waits for an answer', async () => {
  const store = await openObjectStore('s3://bucket/prefix/');
  await store.write('of/large', bodyOf(large), signal);
  const range = { start: 0, end: large.length - 1 };
  const resume = s3.pause();
  const reader = new AbortController();
  const reads = [
    store.text('of/large', reader.signal),
    store.size('of/large', reader.signal),
    store.read('of/large', range, reader.signal),
  ];
  await vi.waitFor(() => expect(s3.openRequests()).toBe(reads.length));
  reader.abort();
  for (const read of reads) await expect(read).rejects.toThrow('aborted');
  await vi.waitFor(() => expect(s3.openRequests()).toBe(0));
  resume();
  const body = await store.read('of/large', range, signal);
  expect(s3.openRequests()).toBe(1);
  body.destroy();
  await vi.waitFor(() => expect(s3.openRequests()).toBe(0));
});

it('a bucket that does not exist is not read as one without objects', async () => {
  const store = await openObjectStore(`s3://${MISSING_BUCKET}/prefix`);
  const refused = {
    code: 'CONFIG_INVALID',
    message: 'The object store answered 404: NoSuchBucket: NoSuchBucket',
  };
  await expect(store.text('manifest.json', signal)).rejects.toMatchObject(refused);
  await expect(store.write('a', bodyOf(Buffer.from('b')), signal)).rejects.toMatchObject(refused);
});

it('a request without credentials says that there are none', async () => {
  for (const name of ['AWS_ACCESS_KEY_ID', 'AWS_SECRET_ACCESS_KEY']) vi.stubEnv(name, undefined);
  vi.stubEnv('AWS_EC2_METADATA_DISABLED', 'true');
  for (const name of ['AWS_CONFIG_FILE', 'AWS_SHARED_CREDENTIALS_FILE'])
    vi.stubEnv(name, join(folder, 'none'));
  try {
    const store = createS3Store('bucket', 'prefix');
    await expect(store.text('manifest.json', signal)).rejects.toMatchObject({
      code: 'CONFIG_INVALID',
      message: expect.stringMatching(/^The object store cannot be used: .*credentials/),
    });
  } finally {
    for (const [name, value] of Object.entries(s3.env)) vi.stubEnv(name, value);
  }
});

it('a request without a region names its setting', async () => {
  for (const name of ['AWS_REGION', 'AWS_DEFAULT_REGION']) vi.stubEnv(name, undefined);
  for (const name of ['AWS_CONFIG_FILE', 'AWS_SHARED_CREDENTIALS_FILE'])
    vi.stubEnv(name, join(folder, 'none'));
  try {
    const store = createS3Store('bucket', 'prefix');
    await expect(store.text('manifest.json', signal)).rejects.toMatchObject({
      code: 'CONFIG_INVALID',
      message: 'The object store cannot be used: Region is missing: set AWS_REGION',
    });
  } finally {
    for (const [name, value] of Object.entries(s3.env)) vi.stubEnv(name, value);
  }
});

describe('a bucket that does not answer', () => {
  const unavailable = { code: 'STORE_UNAVAILABLE', retryable: true };

  it('is given up after a silence, in any request', async () => {
    const store = createS3Store('bucket', 'silent', { silentMs: 100, longSilentMs: 100 });
    const resume = s3.pause();
    await expect(store.size('a', signal)).rejects.toMatchObject(unavailable);
    await expect(store.read('a', { start: 0, end: 9 }, signal)).rejects.toMatchObject(unavailable);
    await expect(store.write('a', bodyOf(large), signal)).rejects.toThrow();
    resume();
  });

  it('is unavailable itself while no server listens there', async () => {
    vi.stubEnv('AWS_ENDPOINT_URL_S3', 'http://127.0.0.1:1');
    const refused = { ...unavailable, message: 'The object store did not answer' };
    try {
      const store = createS3Store('bucket', 'refused');
      await expect(store.size('a', signal)).rejects.toMatchObject(refused);
      await expect(store.write('a', bodyOf(Buffer.from('b')), signal)).rejects.toMatchObject(refused);
    } finally {
      vi.stubEnv('AWS_ENDPOINT_URL_S3', s3.env['AWS_ENDPOINT_URL_S3']);
    }
  });

  it('is unavailable, not wrong, while it is too busy', async () => {
    const store = createS3Store('bucket', 'busy');
    s3.failWith(503);
    await expect(store.size('a', signal)).rejects.toMatchObject(unavailable);
    s3.failWith(403);
    await expect(store.size('a', signal)).rejects.not.toMatchObject(unavailable);
    s3.failWith(null);
    expect(await store.size('a', signal)).toBeNull();
  });
});
