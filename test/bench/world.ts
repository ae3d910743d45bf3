import { chmodSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { answerGateway } from '../../infra/embedded/ipfs/gateway.ts';
import { serveOnLoopback } from '../../infra/embedded/loopback.ts';
import { freePort } from '../../infra/embedded/ports.ts';
import { Releasers, sleep } from '../../infra/lifecycle.ts';
import { startKafkaCluster } from '../support/kafka-cluster.ts';
import type { KafkaCluster } from '../support/kafka-cluster.ts';
import { startService } from '../support/service.ts';
import type { RunningService } from '../support/service.ts';
import { startChain } from './chain.ts';
import type { ChainProcess } from './chain.ts';
import { createClient } from './client.ts';
import type { Client } from './client.ts';
import { childrenOf, isAlive } from './processes.ts';
import { openStores } from './stores.ts';
import type { Stores } from './stores.ts';

/** The processes of a case, in its own folder and on free ports; all stopped when the case ends. */
export interface World {
  readonly dir: string;
  /** Names of the started processes, by pid. */
  readonly names: ReadonlyMap<number, string>;
  /** Reports progress; not part of the result. */
  readonly say: (line: string) => void;
  chain(options: Parameters<typeof startChain>[0]): Promise<ChainProcess>;
  /** Serves the metadata of the simulated NFTs from this process; returns the gateway's URL. */
  gateway(): Promise<string>;
  /** Starts three Kafka brokers. */
  kafkaCluster(): Promise<KafkaCluster>;
  /** Starts the whole service, as `npm start` does. */
  service(
    name: string,
    settings?: Readonly<Record<string, string>>,
  ): Promise<{ service: RunningService; dataDir: string }>;
  stores(dataDir: string): Promise<Stores>;
  client(base: string, headers?: Readonly<Record<string, string>>): Client;
  close(): Promise<void>;
}

/** A service that is not ready by then fails the case. */
const READY_MS = 180_000;
const LAST_GRACE_MS = 15_000;

export function createWorld(options: {
  readonly say: (line: string) => void;
  /** Folder for the CPU profile that every Node process of the service writes when it exits. */
  profileDir: string | null;
  nodeOptions: string;
  /** Settings of every service, over those of a case. */
  settings: Readonly<Record<string, string>>;
}): World {
  const { say, profileDir, nodeOptions } = options;
  const dir = mkdtempSync(join(tmpdir(), 'tds-bench-'));
  // PostgreSQL may run as another user, which needs access to the folder.
  chmodSync(dir, 0o755);
  const releasers = new Releasers((name, error) => say(`could not stop ${name}: ${String(error)}`));
  releasers.push('folder', () => rmSync(dir, { recursive: true, force: true }));
  // A process that is being started at Ctrl-C is known only here.
  releasers.push('processes', endChildren);
  const names = new Map<number, string>();
  const asProfiled = profileDir === null ? '' : ` --cpu-prof --cpu-prof-dir=${profileDir}`;
  const ofNode = { NODE_OPTIONS: `${nodeOptions}${asProfiled}`.trim() };
  return {
    dir,
    names,
    say,
    async chain(asked) {
      const chain = await startChain(asked);
      releasers.push('simulated node', () => chain.stop());
      return chain;
    },
    async gateway() {
      const { url, close } = await serveOnLoopback(answerGateway);
      releasers.push('gateway', close);
      return url;
    },
    async kafkaCluster() {
      const cluster = await startKafkaCluster();
      releasers.push('Kafka cluster', () => cluster.stop());
      return cluster;
    },
    async service(name, settings = {}) {
      const dataDir = join(dir, name);
      mkdirSync(dataDir, { recursive: true });
      const port = String(await freePort());
      const service = await startService(
        dataDir,
        { PORT: port, ...ofNode, ...settings, ...options.settings },
        { withinMs: READY_MS },
      );
      names.set(service.pid, 'supervisor');
      for (const [role, pid] of Object.entries(service.pids())) names.set(pid, role);
      releasers.push('service', async () => void (isAlive(service.pid) && (await service.stop())));
      return { service, dataDir };
    },
    async stores(dataDir) {
      const stores = await openStores(dataDir);
      releasers.push('stores', () => stores.close());
      return stores;
    },
    client(base, headers) {
      const client = createClient(base, headers);
      releasers.push('client', () => client.close());
      return client;
    },
    close: () => releasers.releaseAll(),
  };
}

async function endChildren(): Promise<void> {
  const alive = (): number[] => childrenOf(process.pid);
  const signal = (name: NodeJS.Signals): void => {
    for (const pid of alive()) process.kill(pid, name);
  };
  signal('SIGTERM');
  for (let waited = 0; waited < LAST_GRACE_MS && alive().length > 0; waited += 100) await sleep(100);
  signal('SIGKILL');
}
