import { z } from 'zod';

import type { ByteRange, ObjectStore } from '../../infra/object-store/store.ts';
import { exportManifest } from '../../schemas/api/exports.ts';
import { HttpError, notFound } from '../http/errors.ts';
import { StreamedAnswer, defineRoute } from '../http/route.ts';
import type { Route } from '../http/route.ts';
import { readManifest } from './manifest.ts';

const PARQUET = 'application/vnd.apache.parquet';

/** @param store that of `tds export build`; null: none, and both routes answer 404 */
export function exportFileRoutes(store: ObjectStore | null): Route[] {
  return [manifestRoute(store), fileRoute(store)];
}

function manifestRoute(store: ObjectStore | null): Route {
  return defineRoute({
    id: 'getExportManifest',
    method: 'GET',
    path: '/api/export/manifest.json',
    summary: 'List the files of all transfers',
    description:
      'Lists Parquet files with the columns of an export, one for each range of heights accepted on L1. A listed file never changes. Returns 404 if the operator has built none.',
    tag: 'Exports',
    auth: 'key',
    response: { 200: exportManifest },
    async handler({ request }) {
      const manifest = store === null ? null : await readManifest(store, request.signal);
      if (manifest === null) throw notFound('The operator has built no files.');
      return { status: 200, body: manifest };
    },
  });
}

/** SHA-256 of a file; undefined if the manifest does not list it: it may be of a run that was killed, and change. */
type HashOf = (store: ObjectStore, url: string, signal: AbortSignal) => Promise<string | undefined>;

function createHashOf(): HashOf {
  /** By URL. What is listed remains so. */
  let hashes: ReadonlyMap<string, string> = new Map();
  return async (store, url, signal) => {
    if (!hashes.has(url)) {
      const manifest = await readManifest(store, signal);
      hashes = new Map(manifest?.files.map((file) => [file.url, file.sha256]));
    }
    return hashes.get(url);
  };
}

function fileRoute(store: ObjectStore | null): Route {
  const hashOf = createHashOf();
  const file = new StreamedAnswer(
    { [PARQUET]: 'The file, or the part of it that `Range` names' },
    {
      request: {
        Range: 'Bytes of the file, such as `bytes=0-1023` or `bytes=-8`',
        'If-Range': 'An `ETag`: `Range` applies only if it is that of the file',
        'If-Match': 'An `ETag`: 412 if it is not that of the file',
        'If-None-Match': 'An `ETag`: 304 if it is that of the file',
      },
      response: {
        ETag: 'The `sha256` of the file in the manifest, in quotes',
        'Content-Range': 'For a part of the file: its bytes, and the size of the file',
      },
    },
  );
  return defineRoute({
    id: 'getExportFile',
    method: 'GET',
    path: '/api/export/files/{name}/',
    summary: 'Get a file of the manifest',
    description: 'Takes a `Range` of bytes, so that a reader of Parquet fetches only what it needs.',
    tag: 'Exports',
    auth: 'key',
    params: z.object({ name: z.string().regex(/^transfers-\d+-\d+\.parquet$/) }),
    response: { 200: file, 206: file, 304: null },
    errors: [412, 416],
    async handler({ input: { params }, request }) {
      const name = `files/${params.name}`;
      const { isHead, signal } = request;
      const hash = store === null ? undefined : await hashOf(store, name, signal);
      if (store === null || hash === undefined) throw notFound();
      const size = await store.size(name, signal);
      if (size === null) throw notFound();
      const etag = `"${hash}"`;
      const cacheable = { ETag: etag, 'Cache-Control': 'private, max-age=31536000, immutable' };
      const required = request.header('if-match');
      if (required !== '' && !namesTag(required, ['*', etag]))
        throw new HttpError(412, 'precondition_failed', 'The file has another ETag.', {
          headers: { ETag: etag },
        });
      if (namesTag(request.header('if-none-match'), ['*', etag, `W/${etag}`]))
        return { status: 304, headers: cacheable, body: null };
      // RFC 9110 defines ranges for GET only, and ignores them where `If-Range` is not the strong tag of the file.
      const isWhole = isHead || !['', etag].includes(request.header('if-range').trim());
      const range = isWhole ? null : rangeOf(request.header('range'), size);
      const { start, end } = range ?? { start: 0, end: size - 1 };
      const stream = isHead ? null : await store.read(name, { start, end }, signal);
      const body = { mediaType: PARQUET, stream };
      const headers = { ...cacheable, 'Accept-Ranges': 'bytes', 'Content-Length': String(end - start + 1) };
      if (range === null) return { status: 200, headers, body };
      return { status: 206, headers: { ...headers, 'Content-Range': `bytes ${start}-${end}/${size}` }, body };
    },
  });
}

/** Whether an `If-Match` or `If-None-Match` header names one of these tags. */
const namesTag = (header: string, tags: readonly string[]): boolean =>
  header.split(',').some((tag) => tags.includes(tag.trim()));

/**
 * The bytes that a `Range` header names; null: all, also where it names several ranges, or a reversed one, as RFC 9110 allows.
 *
 * @throws 416 where it names none of the file
 */
function rangeOf(header: string, size: number): ByteRange | null {
  const [, first = '', last = ''] = /^bytes=(\d{0,15})-(\d{0,15})$/.exec(header.trim()) ?? [];
  if (first === '' && last === '') return null;
  if (first !== '' && last !== '' && Number(first) > Number(last)) return null;
  const start = first === '' ? Math.max(0, size - Number(last)) : Number(first);
  const end = first === '' || last === '' ? size - 1 : Math.min(Number(last), size - 1);
  if (start <= end) return { start, end };
  throw new HttpError(416, 'range_not_satisfiable', 'The file does not have these bytes.', {
    headers: { 'Content-Range': `bytes */${size}` },
  });
}
