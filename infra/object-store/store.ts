import type { Readable } from 'node:stream';

import { AppError } from '../../schemas/errors.ts';

export interface ByteRange {
  readonly start: number;
  readonly end: number;
}

/** Named files, in a folder or in a bucket of an object store. */
export interface ObjectStore {
  /** The whole text; null: there is no such object. */
  text(name: string, signal: AbortSignal): Promise<string | null>;
  /** In bytes; null: there is no such object. */
  size(name: string, signal: AbortSignal): Promise<number | null>;
  /** The bytes from `start` to `end`, both included. */
  read(name: string, range: ByteRange, signal: AbortSignal): Promise<Readable>;
  /** Replaces the object when all bytes are stored, in one step: a reader sees the old one, or the whole new one. */
  write(name: string, body: Readable, signal: AbortSignal): Promise<void>;
}

const BUCKET = /^s3:\/\/([^/]+)(?:\/(.*))?$/;
const ANY_URL = /^[a-z][a-z\d+.-]*:\/\//i;

/** A folder, or `s3://BUCKET/PREFIX`. Any other URL as a folder would be a path below the working directory. */
export const isObjectStore = (location: string): boolean => BUCKET.test(location) || !ANY_URL.test(location);

/** @throws `INVALID` where `isObjectStore` is false */
export async function openObjectStore(location: string): Promise<ObjectStore> {
  if (!isObjectStore(location))
    throw new AppError('INVALID', `Not a folder or s3://BUCKET/PREFIX: ${location}`);
  const [, bucket, prefix = ''] = BUCKET.exec(location) ?? [];
  if (bucket === undefined) {
    const { createFolderStore } = await import('./folder.ts');
    return createFolderStore(location);
  }
  // Loaded only where it is used: the SDK is large.
  const { createS3Store } = await import('./s3.ts');
  return createS3Store(bucket, prefix.replace(/\/*$/, ''));
}
