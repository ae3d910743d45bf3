import { execFile } from 'node:child_process';
import { delimiter } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const run = promisify(execFile);
const folder = fileURLToPath(new URL('python', import.meta.url));

/** Why a module cannot be imported; null: it can. */
export async function pythonLacks(module: string, name = module): Promise<string | null> {
  try {
    await python('-c', `import ${module}`);
    return null;
  } catch {
    return `python3 with ${name} is not installed`;
  }
}

/** What a program prints; it finds the modules in `python/`. */
export async function python(...args: readonly string[]): Promise<string> {
  const paths = [folder, process.env['PYTHONPATH'] ?? ''].filter((path) => path !== '');
  const { stdout } = await run('python3', args, {
    env: { ...process.env, PYTHONPATH: paths.join(delimiter), PYTHONDONTWRITEBYTECODE: '1' },
    maxBuffer: 64_000_000,
  });
  return stdout;
}
