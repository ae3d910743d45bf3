import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const NAME = 'token-data-service-client';
const VERSION = '0.1.0';

/** A project that has nothing but the client, as `npm pack` makes it. */
export interface ClientProject {
  readonly dir: string;
  /** Folder of the client in it. */
  readonly installed: string;
  write(name: string, text: string): void;
}

export function installPackedClient(): ClientProject {
  const dir = mkdtempSync(join(tmpdir(), 'client-'));
  const installed = join(dir, 'node_modules', NAME);
  const write = (name: string, text: string): void => writeFileSync(join(dir, name), text);
  execFileSync('npm', ['pack', '--silent', '--pack-destination', dir], { cwd: 'client' });
  mkdirSync(installed, { recursive: true });
  execFileSync('tar', ['-xzf', join(dir, `${NAME}-${VERSION}.tgz`), '-C', installed, '--strip-components=1']);
  // Deno resolves only what is named here.
  write('package.json', JSON.stringify({ type: 'module', private: true, dependencies: { [NAME]: VERSION } }));
  return { dir, installed, write };
}
