import type { TestProject } from 'vitest/node';

import type { EmbeddedUrls } from '../../infra/embedded/index.ts';
import { startBackend } from './backend.ts';
import type { Backend } from './backend.ts';

declare module 'vitest' {
  export interface ProvidedContext {
    /** The servers of this run; support/isolation.ts creates databases in them for one file. */
    backend: { readonly kind: Backend['kind']; readonly urls: EmbeddedUrls };
  }
}

/** Every vitest project loads this file separately, so shared state is kept on globalThis. */
interface Shared {
  users: number;
  backend: Promise<Backend>;
}
const registry: { [key: symbol]: Shared | undefined } = globalThis;
const key = Symbol.for('token-data-service test back end');

/** Starts one back end for the whole run, when the first project needs it. */
export async function setup(project: TestProject): Promise<void> {
  const shared = (registry[key] ??= { users: 0, backend: startAndReport() });
  shared.users++;
  const { kind, urls } = await shared.backend;
  project.provide('backend', { kind, urls });
}

export async function teardown(): Promise<void> {
  const shared = registry[key];
  if (shared === undefined || --shared.users > 0) return;
  registry[key] = undefined;
  await (await shared.backend).stop();
}

async function startAndReport(): Promise<Backend> {
  const startedAt = performance.now();
  const backend = await startBackend();
  const seconds = ((performance.now() - startedAt) / 1000).toFixed(1);
  process.stdout.write(`Test back end: ${backend.kind}, started in ${seconds} s\n`);
  return backend;
}
