import { execFileSync } from 'node:child_process';
import { accessSync, constants, readFileSync, statSync } from 'node:fs';
import { delimiter, dirname, join } from 'node:path';

import { AppError } from '../../schemas/errors.ts';

/** PostgreSQL refuses to run as root. */
export interface Account {
  /** Owner of the cluster; undefined: the user of this process. */
  readonly uid: number | undefined;
  readonly gid: number | undefined;
  wrap(command: string, args: readonly string[]): Wrapped;
}

interface Wrapped {
  readonly command: string;
  readonly args: readonly string[];
  readonly uid?: number | undefined;
  readonly gid?: number | undefined;
}

/**
 * The account that PostgreSQL runs as if this process is root: the owner of the cluster if it exists, otherwise the
 * system's `postgres` user (created if missing), otherwise `nobody`.
 *
 * The account needs access to every parent folder of the binaries and the data, some of which may be 0700 (a checkout
 * under /root, a DATA_DIR made by mkdtemp). Instead of changing their modes, it gets the capability to enter them
 * (`setpriv` of util-linux).
 */
export function postgresAccount(
  cluster: { uid: number; gid: number } | null,
  paths: readonly string[],
): Account {
  if (process.getuid?.() !== 0) {
    return { uid: undefined, gid: undefined, wrap: (command, args) => ({ command, args }) };
  }
  const owner = cluster !== null && cluster.uid !== 0 ? cluster : findOrCreateUser();
  const { uid, gid } = owner;
  const closed = paths.map((path) => closedAbove(path, owner)).find((folder) => folder !== null) ?? null;
  if (closed === null) return { uid, gid, wrap: (command, args) => ({ command, args, uid, gid }) };
  const setpriv = inPath('setpriv');
  if (setpriv === null) {
    throw new AppError(
      'CONFIG_INVALID',
      `Embedded PostgreSQL runs as user ${uid}, which cannot enter ${closed}: run chmod o+x ${closed}, set DATA_DIR to another folder, run as another user than root, or set DATABASE_URL`,
    );
  }
  const drop = [`--reuid=${uid}`, `--regid=${gid}`, '--clear-groups'];
  const pass = ['--inh-caps=+dac_override', '--ambient-caps=+dac_override'];
  return {
    uid,
    gid,
    wrap: (command, args) => ({ command: setpriv, args: [...drop, ...pass, command, ...args] }),
  };
}

function findOrCreateUser(): { uid: number; gid: number } {
  const known = lookUp('postgres');
  if (known !== null) return known;
  try {
    execFileSync('useradd', ['--system', '--user-group', '--no-create-home', 'postgres'], {
      stdio: 'ignore',
    });
  } catch {
    // No useradd, or a read-only system: use `nobody`.
  }
  return lookUp('postgres') ?? lookUp('nobody') ?? { uid: 65_534, gid: 65_534 };
}

function lookUp(name: string): { uid: number; gid: number } | null {
  const line = readFileSync('/etc/passwd', 'utf8')
    .split('\n')
    .find((entry) => entry.startsWith(`${name}:`));
  const [, , uid, gid] = line?.split(':') ?? [];
  return uid === undefined || gid === undefined ? null : { uid: Number(uid), gid: Number(gid) };
}

/** The closest parent folder of a path that an account cannot enter, or null. */
function closedAbove(path: string, account: { uid: number; gid: number }): string | null {
  for (let folder = dirname(path); ; folder = dirname(folder)) {
    const { mode, uid, gid } = statSync(folder);
    const shift = uid === account.uid ? 6 : gid === account.gid ? 3 : 0;
    if (((mode >> shift) & 1) === 0) return folder;
    if (folder === dirname(folder)) return null;
  }
}

function inPath(program: string): string | null {
  for (const folder of (process.env['PATH'] ?? '/usr/bin:/bin').split(delimiter)) {
    const file = join(folder, program);
    try {
      accessSync(file, constants.X_OK);
      return file;
    } catch {
      // Not in this folder.
    }
  }
  return null;
}
