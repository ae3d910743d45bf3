import { createHash, randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { buffer } from 'node:stream/consumers';

/** A simulated object store, which speaks the part of S3's protocol that an upload in parts and reads by range need. */
export interface SimulatedS3 {
  /** What a client's environment needs. */
  readonly env: Readonly<Record<string, string>>;
  /** By `BUCKET/KEY`. */
  readonly objects: ReadonlyMap<string, Buffer>;
  /** Uploads that have neither been completed nor aborted. */
  openUploads(): number;
  /** Requests whose answer has not been sent whole. */
  openRequests(): number;
  /** Answers no request until the function that it returns is called. */
  pause(): () => void;
  /** Answers requests with this status, as when the store is busy; null: as they should be. */
  failWith(status: number | null): void;
  close(): Promise<void>;
}

const ACCESS_KEY = 'simulated';
/** The only bucket that does not exist. */
export const MISSING_BUCKET = 'missing';

export async function startSimulatedS3(): Promise<SimulatedS3> {
  const objects = new Map<string, Buffer>();
  const uploads = new Map<string, Map<number, Buffer>>();
  let openRequests = 0;
  let paused = Promise.resolve();
  let failure: number | null = null;
  const server = createServer((request, response) => {
    openRequests += 1;
    response.once('close', () => (openRequests -= 1));
    void paused
      .then(async () => {
        if (failure === null) await answer(request, response, { objects, uploads });
        else response.writeHead(failure).end();
      })
      .catch(() => response.destroy());
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    env: {
      AWS_ENDPOINT_URL_S3: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
      AWS_REGION: 'us-east-1',
      AWS_ACCESS_KEY_ID: ACCESS_KEY,
      AWS_SECRET_ACCESS_KEY: randomUUID(),
    },
    objects,
    openUploads: () => uploads.size,
    openRequests: () => openRequests,
    pause() {
      const { promise, resolve } = Promise.withResolvers<void>();
      paused = promise;
      return resolve;
    },
    failWith: (status) => void (failure = status),
    async close() {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
}

async function answer(
  request: IncomingMessage,
  response: ServerResponse,
  {
    objects,
    uploads,
  }: { readonly objects: Map<string, Buffer>; readonly uploads: Map<string, Map<number, Buffer>> },
): Promise<void> {
  const { pathname, searchParams } = new URL(request.url ?? '', 'http://localhost');
  const key = decodeURIComponent(pathname.slice(1));
  const body = await buffer(request);
  const [uploadId, part] = [searchParams.get('uploadId'), searchParams.get('partNumber')];
  const parts = uploads.get(uploadId ?? '');
  const xml = (text: string): void => void response.setHeader('content-type', 'application/xml').end(text);
  const fail = (status: number, code: string): void => {
    response.statusCode = status;
    xml(`<Error><Code>${code}</Code><Message>${code}</Message></Error>`);
  };
  if (!request.headers.authorization?.startsWith(`AWS4-HMAC-SHA256 Credential=${ACCESS_KEY}/`)) {
    fail(403, 'AccessDenied');
  } else if (key.startsWith(`${MISSING_BUCKET}/`)) fail(404, 'NoSuchBucket');
  else if (uploadId !== null && parts === undefined) fail(404, 'NoSuchUpload');
  else if (request.method === 'POST' && searchParams.has('uploads')) {
    const id = randomUUID();
    uploads.set(id, new Map());
    xml(`<InitiateMultipartUploadResult><UploadId>${id}</UploadId></InitiateMultipartUploadResult>`);
  } else if (request.method === 'PUT' && parts !== undefined) {
    parts.set(Number(part), body);
    response.setHeader('etag', etagOf(body)).end();
  } else if (request.method === 'POST' && parts !== undefined) {
    const inOrder = [...parts].toSorted(([a], [b]) => a - b).map(([, bytes]) => bytes);
    objects.set(key, Buffer.concat(inOrder));
    uploads.delete(uploadId ?? '');
    xml('<CompleteMultipartUploadResult></CompleteMultipartUploadResult>');
  } else if (request.method === 'DELETE' && parts !== undefined) {
    uploads.delete(uploadId ?? '');
    response.writeHead(204).end();
  } else if (request.method === 'PUT') {
    objects.set(key, body);
    response.setHeader('etag', etagOf(body)).end();
  } else readObject(request, response, objects.get(key) ?? null, () => fail(404, 'NoSuchKey'));
}

function readObject(
  request: IncomingMessage,
  response: ServerResponse,
  object: Buffer | null,
  onMissing: () => void,
): void {
  if (object === null) {
    onMissing();
    return;
  }
  const [, start, end] = /^bytes=(\d+)-(\d+)$/.exec(request.headers.range ?? '') ?? [];
  const bytes = start === undefined ? object : object.subarray(Number(start), Number(end) + 1);
  response.writeHead(start === undefined ? 200 : 206, { 'content-length': bytes.length });
  response.end(request.method === 'HEAD' ? undefined : bytes);
}

function etagOf(bytes: Buffer): string {
  return `"${createHash('md5').update(bytes).digest('hex')}"`;
}
