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

/**
 * @param location a folder, or `s3://BUCKET/PREFIX`
 * @throws `INVALID` for any other URL: as a folder it would be a path below the working directory
 */
export async function openObjectStore(location: string): Promise<ObjectStore> {
  const [, bucket, prefix = ''] = /^s3:\/\/([^/]+)(?:\/(.*))?$/.exec(location) ?? [];
  if (bucket === undefined) {
    if (/^[a-z][a-z\d+.-]*:\/\//i.test(location))
      throw new AppError('INVALID', `Not a folder or s3://BUCKET/PREFIX: ${location}`);
    const { createFolderStore } = await import('./folder.ts');
    return createFolderStore(location);
  }
  // Loaded only where it is used: the SDK is large.
  const { createS3Store } = await import('./s3.ts');
  return createS3Store(bucket, prefix.replace(/\/*$/, ''));
}
