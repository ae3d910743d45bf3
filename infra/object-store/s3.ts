import type { Readable } from 'node:stream';

import { GetObjectCommand, HeadObjectCommand, S3Client, S3ServiceException } from '@aws-sdk/client-s3';
import { Upload } from '@aws-sdk/lib-storage';

import { AppError } from '../../schemas/errors.ts';
import { isNetworkError } from '../network-errors.ts';
import type { ObjectStore } from './store.ts';

/** A part of an upload: an object has at most 10,000, and two are held in memory. */
const PART_BYTES = 16 * 1024 * 1024;

const CONNECT_MS = 5000;
/** Without a byte in either direction. */
const SILENT_MS = 30_000;
/**
 * The same while an object is read or written: a slow client may not read for minutes while its buffers are full, and a store may
 * complete a large upload without a byte.
 */
const LONG_SILENT_MS = 300_000;

/**
 * A bucket of S3, or of a store that speaks its protocol. Endpoint, region and credentials are those of the AWS tools:
 * `AWS_ENDPOINT_URL_S3`, `AWS_REGION`, `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`, or a profile, or the machine's role.
 */
export function createS3Store(
  bucket: string,
  prefix: string,
  {
    silentMs = SILENT_MS,
    longSilentMs = LONG_SILENT_MS,
  }: { readonly silentMs?: number; readonly longSilentMs?: number } = {},
): ObjectStore {
  const hasEndpoint = ['AWS_ENDPOINT_URL_S3', 'AWS_ENDPOINT_URL'].some((name) => process.env[name]);
  const clientWith = (socketTimeout: number): S3Client =>
    new S3Client({
      // Others than AWS have no host name for each bucket, and do not know the checksums that AWS added in 2024.
      ...(hasEndpoint ? { forcePathStyle: true } : {}),
      // Its `requestTimeout` only logs a warning.
      requestHandler: { connectionTimeout: CONNECT_MS, socketTimeout },
      requestChecksumCalculation: 'WHEN_REQUIRED',
      responseChecksumValidation: 'WHEN_REQUIRED',
    });
  const client = clientWith(silentMs);
  const patient = clientWith(longSilentMs);
  const named = async (name: string) => {
    // The SDK has no class or code for this error.
    await client.config.region().catch((cause: Error) => {
      const text = `The object store cannot be used: ${cause.message}: set AWS_REGION`;
      throw new AppError('CONFIG_INVALID', text, { cause });
    });
    return { Bucket: bucket, Key: prefix === '' ? name : `${prefix}/${name}` };
  };
  return {
    async text(name, abortSignal) {
      const command = new GetObjectCommand(await named(name));
      const read = async (): Promise<string | null> =>
        (await (await client.send(command, { abortSignal })).Body?.transformToString('utf8')) ?? null;
      return await ifThere(read());
    },
    async size(name, abortSignal) {
      const answer = await ifThere(client.send(new HeadObjectCommand(await named(name)), { abortSignal }));
      return answer?.ContentLength ?? null;
    },
    async read(name, { start, end }, abortSignal) {
      const command = new GetObjectCommand({ ...(await named(name)), Range: `bytes=${start}-${end}` });
      const { Body } = await patient.send(command, { abortSignal }).catch(asAppError);
      return Body as Readable;
    },
    async write(name, body, signal) {
      const params = { ...(await named(name)), Body: body };
      signal.throwIfAborted();
      const upload = new Upload({ client: patient, params, partSize: PART_BYTES, queueSize: 2 });
      const abort = (): void => void upload.abort();
      signal.addEventListener('abort', abort, { once: true });
      try {
        await upload.done().catch(asAppError);
      } finally {
        signal.removeEventListener('abort', abort);
        body.destroy();
      }
    },
  };
}

async function ifThere<T>(request: Promise<T>): Promise<T | null> {
  try {
    return await request;
  } catch (error) {
    const isMissing = error instanceof S3ServiceException && error.$metadata.httpStatusCode === 404;
    if (isMissing && error.name !== 'NoSuchBucket') return null;
    return asAppError(error);
  }
}

/** What the SDK throws where it finds no credentials, without a class in its API. */
const NO_CREDENTIALS = 'CredentialsProviderError';

/**
 * @throws STORE_UNAVAILABLE for a transient error, CONFIG_INVALID for a request that the store refuses or that has no credentials,
 *   the error itself otherwise
 */
function asAppError(error: unknown): never {
  if (!(error instanceof Error)) throw error;
  const status = error instanceof S3ServiceException ? (error.$metadata.httpStatusCode ?? 0) : 0;
  const isTimeout = error.name === 'TimeoutError';
  const isUnanswered = isTimeout || isNetworkError(error);
  if (isUnanswered || status === 429 || status >= 500) {
    const details = { store: 'the object store' };
    const problem = isTimeout ? 'timed out' : isUnanswered ? 'did not answer' : `answered ${status}`;
    throw new AppError('STORE_UNAVAILABLE', `The object store ${problem}`, {
      retryable: true,
      cause: error,
      details,
    });
  }
  if (!(error instanceof S3ServiceException) && error.name !== NO_CREDENTIALS) throw error;
  const problem = status > 0 ? `The object store answered ${status}` : 'The object store cannot be used';
  throw new AppError('CONFIG_INVALID', `${problem}: ${error.name}: ${error.message}`, { cause: error });
}
