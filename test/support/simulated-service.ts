import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { freePort } from '../../infra/embedded/ports.ts';
import { inspector } from './faults/inspect.ts';
import type { Inspector } from './faults/inspect.ts';
import { isolated } from './isolation.ts';
import { startService } from './service.ts';
import type { RunningService } from './service.ts';
import { createSimulatedNode } from './starknet/node.ts';
import type { NodeOptions, SimulatedNode } from './starknet/node.ts';

/** The whole service on a simulated chain that advances on command, with databases or stores of its own. */
export interface SimulatedService {
  readonly node: SimulatedNode;
  readonly service: RunningService;
  readonly inspected: Inspector;
  /** The settings with which a further process of a role joins the service. */
  settings(): Record<string, string>;
  close(): Promise<void>;
}

/**
 * @param prepare called before the service starts
 * @param hasOwnStores starts stores that a test may kill; otherwise it has databases in those of the test run
 */
export async function simulatedService(
  chain: NodeOptions & { readonly l1Height: number },
  {
    settings = {},
    prepare = () => {},
    hasOwnStores = false,
  }: {
    readonly settings?: Readonly<Record<string, string>>;
    readonly prepare?: (node: SimulatedNode) => void;
    readonly hasOwnStores?: boolean;
  } = {},
): Promise<SimulatedService> {
  const { l1Height, ...options } = chain;
  const own = hasOwnStores ? null : await isolated();
  const dataDir = mkdtempSync(join(tmpdir(), 'tds-simulated-'));
  const node = await createSimulatedNode({ manual: true, malformed: 0.02, ...options, l1: null });
  node.control({ command: 'setL1', height: l1Height });
  prepare(node);
  const env = {
    ...own?.env,
    STARKNET_RPC_URL: node.url,
    INDEX_FROM: '0',
    HEAD_POLL_MS: '50',
    LOG_LEVEL: 'warn',
    PORT: String(await freePort()),
    ...settings,
  };
  const service = await startService(dataDir, env);
  const inspected = inspector(node, { ...env, ...service.settings() });
  return {
    node,
    service,
    inspected,
    settings: () => ({ ...service.settings(), DATA_DIR: dataDir }),
    async close() {
      await inspected.close();
      await service.stop();
      await node.close();
      await own?.drop();
      rmSync(dataDir, { recursive: true, force: true });
    },
  };
}
