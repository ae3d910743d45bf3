import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { startEmbedded } from '../../infra/embedded/index.ts';
import type { EmbeddedUrls } from '../../infra/embedded/index.ts';
import { createLogger } from '../../infra/log.ts';

/**
 * The servers that integration tests run against: the embedded ones, or official images in containers. Tests see URLs
 * and cannot tell which.
 */
export interface Backend {
  readonly kind: 'embedded' | 'testcontainers';
  readonly urls: EmbeddedUrls;
  stop(): Promise<void>;
}

/** Embedded, unless `TEST_BACKEND=testcontainers` (which needs a container engine). */
export async function startBackend(env: NodeJS.ProcessEnv = process.env): Promise<Backend> {
  const kind = env['TEST_BACKEND'] ?? 'embedded';
  if (kind === 'embedded') return await startEmbeddedBackend();
  if (kind !== 'testcontainers') {
    throw new Error(`TEST_BACKEND is embedded or testcontainers, not ${kind}`);
  }
  // Loaded only here: the library is large and of no use to the embedded back end.
  const { startContainers } = await import('./containers.ts');
  return { kind, ...(await startContainers()) };
}

async function startEmbeddedBackend(): Promise<Backend> {
  const dataDir = mkdtempSync(join(tmpdir(), 'tds-test-'));
  const log = createLogger('test-backend', 'warn');
  // Settings of the shell must not lead tests to a store that holds something.
  const remove = (): void => rmSync(dataDir, { recursive: true, force: true });
  try {
    const embedded = await startEmbedded({ dataDir, log, env: {} });
    return {
      kind: 'embedded',
      urls: embedded.urls,
      async stop() {
        await embedded.stop();
        remove();
      },
    };
  } catch (error) {
    remove();
    throw error;
  }
}
