import { portsOf, takePorts } from '../../embedded/ports.ts';
import type { Config } from '../../config.ts';
import type { Logger } from '../../log.ts';
import { superviseRole } from './supervise.ts';
import type { SupervisedRole } from './supervise.ts';

const roleNames = ['project', 'ingest', 'observe', 'dispatch', 'api'] as const;
type RoleName = (typeof roleNames)[number];
/** The name under which the port of a role's metrics is stored. */
const metricsOf = (role: RoleName) => `metrics-${role}` as const;

/** Starts and supervises every role; sets OWN_PORTS in `env`, which the roles receive. */
export async function superviseRoles({
  dataDir,
  logs,
  env,
  config,
  adminUsername,
  log,
  onStart,
}: {
  readonly dataDir: string;
  readonly logs: string;
  readonly env: NodeJS.ProcessEnv;
  readonly config: Config;
  readonly adminUsername: string;
  readonly log: Logger;
  readonly onStart: () => void;
}): Promise<SupervisedRole[]> {
  await takePorts(dataDir, roleNames.map(metricsOf));
  const { metricsPort } = config;
  const configured = metricsPort > 0 ? roleNames.map((_, index) => metricsPort + index) : [];
  env['OWN_PORTS'] = [...config.ownPorts, ...portsOf(dataDir), ...configured].join(',');
  // Taken again at each start: another process may have taken the port meanwhile.
  const portOf = async (role: RoleName, index: number): Promise<number> =>
    configured[index] ?? (await takePorts(dataDir, [metricsOf(role)]))[metricsOf(role)];
  return roleNames.map((role, index) =>
    superviseRole({
      role,
      env: async () => envOf(role, await portOf(role, index), env, adminUsername),
      logs,
      log,
      onStart,
    }),
  );
}

/** The API receives no URL with write access to a read model. */
function envOf(
  role: RoleName,
  metricsPort: number,
  given: NodeJS.ProcessEnv,
  adminUsername: string,
): NodeJS.ProcessEnv {
  const { ADMIN_USERNAME: _username, ADMIN_PASSWORD: _password, ...own } = given;
  own['METRICS_PORT'] = String(metricsPort);
  if (role !== 'api') return own;
  const { DATABASE_URL: _database, CLICKHOUSE_URL: _clickhouse, ...rest } = own;
  // Its /readyz is 503 until this user exists.
  return { ...rest, ADMIN_USERNAME: adminUsername };
}
