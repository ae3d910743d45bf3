import { startEmbedded } from '../../infra/embedded/index.ts';
import type { EmbeddedUrls } from '../../infra/embedded/index.ts';
import { createLogger } from '../../infra/log.ts';
import { startClickHouseServer } from './clickhouse-servers.ts';
import { onFolder } from './files.ts';

/** The servers that integration tests run against. Tests see only URLs. */
export interface Backend {
  readonly kind: keyof typeof backends;
  readonly urls: EmbeddedUrls;
  stop(): Promise<void>;
}

const backends = {
  embedded: async () => await startEmbeddedBackend({}),
  /** Embedded, but for a server of ClickHouse 25.8. */
  'clickhouse-25.8': startWithClickHouseServer,
  /** Official images, which needs a container engine. */
  async testcontainers() {
    // Imported lazily: the library is large.
    const { startContainers } = await import('./containers.ts');
    return await startContainers();
  },
} satisfies Record<string, () => Promise<Omit<Backend, 'kind'>>>;

/** As `TEST_BACKEND` says; by default embedded. */
export async function startBackend(): Promise<Backend> {
  const kind = process.env['TEST_BACKEND'] ?? 'embedded';
  if (!isKind(kind))
    throw new Error(`TEST_BACKEND must be one of ${Object.keys(backends).join(', ')}, not ${kind}`);
  return { kind, ...(await backends[kind]()) };
}

const isKind = (text: string): text is Backend['kind'] => Object.hasOwn(backends, text);

/** `env`: servers that are not to be embedded. Settings of the shell must not direct tests to a real store. */
async function startEmbeddedBackend(env: Readonly<Record<string, string>>): Promise<Omit<Backend, 'kind'>> {
  const log = createLogger('test-backend', 'warn');
  return await onFolder('tds-test-', async (dataDir) => await startEmbedded({ dataDir, log, env }));
}

async function startWithClickHouseServer(): Promise<Omit<Backend, 'kind'>> {
  const clickhouse = await startClickHouseServer();
  try {
    const backend = await startEmbeddedBackend({
      CLICKHOUSE_URL: clickhouse.url,
      API_CLICKHOUSE_URL: clickhouse.apiUrl,
    });
    return {
      urls: backend.urls,
      async stop() {
        await backend.stop();
        await clickhouse.stop();
      },
    };
  } catch (error) {
    await clickhouse.stop();
    throw error;
  }
}
