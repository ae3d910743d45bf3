import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { startEmbedded } from '../../infra/embedded/index.ts';
import type { EmbeddedUrls } from '../../infra/embedded/index.ts';
import { createLogger } from '../../infra/log.ts';

/**
 * The servers that integration tests run against: embedded, or official images in containers. Tests see only URLs.
 */
export interface Backend {
  readonly kind: 'embedded' | 'testcontainers';
  readonly urls: EmbeddedUrls;
  stop(): Promise<void>;
}

/** Embedded, unless `TEST_BACKEND=testcontainers` (which needs a container engine). */
export async function startBackend(): Promise<Backend> {
  const kind = process.env['TEST_BACKEND'] ?? 'embedded';
  if (kind === 'embedded') return await startEmbeddedBackend();
  if (kind !== 'testcontainers') {
    throw new Error(`TEST_BACKEND must be embedded or testcontainers, not ${kind}`);
  }
  // Imported lazily: the library is large, and the embedded back end does not need it.
  const { startContainers } = await import('./containers.ts');
  return { kind, ...(await startContainers()) };
}

async function startEmbeddedBackend(): Promise<Backend> {
  const dataDir = mkdtempSync(join(tmpdir(), 'tds-test-'));
  const log = createLogger('test-backend', 'warn');
  // An empty env: settings of the shell must not direct tests to a real store.
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
