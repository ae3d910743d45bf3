import type { TestProject } from 'vitest/node';

import type { EmbeddedUrls } from '../../infra/embedded/index.ts';
import { startBackend } from './backend.ts';
import type { Backend } from './backend.ts';

declare module 'vitest' {
  export interface ProvidedContext {
    /** The servers of this run; `support/isolation.ts` gives a file its own corner of them. */
    backend: { readonly kind: Backend['kind']; readonly urls: EmbeddedUrls };
  }
}

/** Each project loads this file anew, so what they share is kept where all of them see it. */
interface Shared {
  users: number;
  backend: Promise<Backend>;
}
const place: { [key: symbol]: Shared | undefined } = globalThis;
const key = Symbol.for('token-data-service test back end');

/** Starts one back end for the whole run, with the first project that needs it. */
export async function setup(project: TestProject): Promise<void> {
  const shared = (place[key] ??= { users: 0, backend: announced() });
  shared.users++;
  const { kind, urls } = await shared.backend;
  project.provide('backend', { kind, urls });
}

export async function teardown(): Promise<void> {
  const shared = place[key];
  if (shared === undefined || --shared.users > 0) return;
  place[key] = undefined;
  await (await shared.backend).stop();
}

async function announced(): Promise<Backend> {
  const began = performance.now();
  const backend = await startBackend();
  const seconds = ((performance.now() - began) / 1000).toFixed(1);
  process.stdout.write(`Test back end: ${backend.kind}, up after ${seconds} s\n`);
  return backend;
}
