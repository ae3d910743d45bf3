import { randomBytes } from 'node:crypto';

import { createSimulatedNode } from '../starknet/node.ts';
import type { NodeOptions, SimulatedNode } from '../starknet/node.ts';
import { migrate } from '../../../infra/postgres/migrate.ts';
import { isolated } from '../isolation.ts';
import { inspector } from './inspect.ts';
import type { Inspector } from './inspect.ts';
import { startRole } from './role.ts';
import type { Role } from './role.ts';

/** A simulated chain, real stores, and roles as processes that reach all of them through proxies. */
export interface FaultWorld extends Inspector {
  readonly node: SimulatedNode;
  /** Settings of the roles, without proxies. */
  readonly env: Readonly<Record<string, string>>;
  /** Starts a role and waits until it is working. */
  start(role: 'ingest' | 'project' | 'dispatch', settings?: Readonly<Record<string, string>>): Promise<Role>;
  /** Waits until the log matches the canonical chain and every projection has read the log to its end. */
  settled(): Promise<void>;
}

const SETTLE_TIMEOUT_MS = 300_000;

/** `servers`: settings that replace those of the shared servers. */
export async function faultWorld(
  options: NodeOptions = {},
  servers: Readonly<Record<string, string>> = {},
): Promise<FaultWorld> {
  const own = await isolated();
  const node = await createSimulatedNode({ manual: true, l1: null, malformed: 0.02, ...options });
  const env = {
    ...own.env,
    ...servers,
    STARKNET_RPC_URL: node.url,
    INDEX_FROM: '0',
    HEAD_POLL_MS: '50',
    L1_POLL_SECONDS: '1',
    SECRET_KEY: randomBytes(32).toString('hex'),
    LOG_LEVEL: 'warn',
  };
  const roles: Role[] = [];
  const inspected = inspector(node, env);
  await Promise.all([migrate(inspected.pool), inspected.kafka.ensureTopics()]);

  return {
    ...inspected,
    node,
    env,
    async start(name, settings = {}) {
      const role = await startRole(name, { ...env, ...settings });
      roles.push(role);
      await role.ready;
      return role;
    },
    async settled() {
      const outputs = (): string => roles.map((role) => `--- ${role.name}\n${role.output()}`).join('\n');
      const end = Date.now() + SETTLE_TIMEOUT_MS;
      while (!(await inspected.isSettled())) {
        const newest = [...new Map(roles.map((role) => [role.name, role])).values()];
        const gone = newest.filter((role) => !role.isRunning()).map(({ name }) => name);
        if (gone.length > 0) throw new Error(`${gone.join()} exited unexpectedly:\n${outputs()}`);
        if (Date.now() > end) throw new Error(`not settled after ${SETTLE_TIMEOUT_MS} ms:\n${outputs()}`);
        await new Promise((resolve) => setTimeout(resolve, 100));
      }
    },
    async close() {
      await Promise.all(roles.map((role) => role.stop()));
      await node.close();
      await inspected.close();
      await own.drop();
    },
  };
}
