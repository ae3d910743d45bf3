import { spawn } from 'node:child_process';
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';

import { afterEach, beforeEach, expect, test, vi } from 'vitest';

import { markOf } from '../../../infra/embedded/processes.ts';

/** The set-up, in a folder whose only package is missing; `npm` is a program of the test. */
let root: string;
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'tds-setup-'));
  write('node_modules/.package-lock.json', '{ "packages": {} }');
  write('package-lock.json', '{ "packages": { "node_modules/one": { "version": "1.0.0" } } }');
  mkdirSync(join(root, 'infra/setup'), { recursive: true });
  copyFileSync('infra/setup/setup.mjs', join(root, 'infra/setup/setup.mjs'));
  write('npm.js', '');
});
afterEach(() => rmSync(root, { recursive: true }));

function write(path: string, text: string, mode = 0o644): void {
  mkdirSync(dirname(join(root, path)), { recursive: true });
  writeFileSync(join(root, path), text, { mode });
}

const stores = { KAFKA_BROKERS: '127.0.0.1:1', REDIS_URL: 'redis://127.0.0.1:1' };
const { scripts } = JSON.parse(readFileSync('package.json', 'utf8')) as { scripts: Record<string, string> };
const lockFolder = '.cache/setup.lock';

interface SetupRun {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly output: string;
}

/** Runs a shell command in which `$SETUP` is the set-up. */
async function setup(
  command: string,
  env: Readonly<Record<string, string>>,
  onOutput: (output: string) => void = () => {},
): Promise<SetupRun> {
  const child = spawn('/bin/sh', ['-c', command], {
    cwd: root,
    timeout: 20_000,
    stdio: ['ignore', 'pipe', 'pipe'],
    env: {
      PATH: join(root, 'bin'),
      npm_execpath: join(root, 'npm.js'),
      SETUP: `${process.execPath} infra/setup/setup.mjs --quiet`,
      ...env,
    },
  });
  let output = '';
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (chunk: Buffer) => {
      output += chunk.toString();
      onOutput(output);
    });
  return await new Promise((resolve) =>
    child.on('close', (code, signal) => resolve({ code, signal, output })),
  );
}

test.each([
  ['the id of a running process with another start time', `echo ${process.ppid} 1`],
  ['its own process id', 'echo $$'],
  ['its own process id with another start time', 'echo $$ 1'],
])('set-up replaces a lock that names %s', async (_, holder) => {
  mkdirSync(join(root, lockFolder), { recursive: true });
  const { code, output } = await setup(`${holder} >${lockFolder}/pid; exec $SETUP`, stores);
  expect(output).not.toContain('waiting');
  expect(code).toBe(0);
  expect(existsSync(join(root, lockFolder))).toBe(false);
});

test('set-up waits for a lock whose process runs, and names both', async () => {
  const began = markOf(process.pid)?.began;
  write(`${lockFolder}/pid`, began === null ? String(process.pid) : `${process.pid} ${began}`);
  const { code, output } = await setup('exec $SETUP', stores, (printed) => {
    if (printed.includes('waiting')) rmSync(join(root, lockFolder), { recursive: true, force: true });
  });
  expect(output).toContain(
    `Set-up: waiting for another set-up, process ${process.pid}, which holds ${join(root, lockFolder)} …\n`,
  );
  expect(code).toBe(0);
});

test.each(['SIGINT', 'SIGTERM', 'SIGHUP'] as const)(
  'set-up ends npm, then removes its lock, on %s',
  async (signal) => {
    write('npm.js', "require('node:fs').mkdirSync(`npm-${process.pid}`); setTimeout(() => {}, 10_000);");
    const npm = (): number[] =>
      readdirSync(root).flatMap((name) => (name.startsWith('npm-') ? [Number(name.slice(4))] : []));
    const ended = setup('exec $SETUP', stores);
    await vi.waitUntil(() => npm().length > 0, { timeout: 10_000, interval: 20 });
    const [holder = ''] = readFileSync(join(root, lockFolder, 'pid'), 'utf8').split(' ');
    process.kill(Number(holder), signal);
    expect((await ended).signal).toBe(signal);
    expect(npm().filter((pid) => markOf(pid) !== null)).toEqual([]);
    expect(existsSync(join(root, lockFolder))).toBe(false);
  },
);

test('set-up without stores needs neither Redis nor Java', async () => {
  const { code, output } = await setup('exec $SETUP --no-stores', {});
  expect(output).not.toMatch(/Redis|Java/i);
  expect(code).toBe(0);
});

test('set-up that fails exits with 2, because 1 means differences for tds verify', async () => {
  write('npm.js', 'process.exit(1)');
  const { code, output } = await setup('exec $SETUP', stores);
  expect(output).toContain('run `npm ci` and read its output');
  expect(code).toBe(2);
});

test.each([
  ['22.12.0', 2],
  ['24.6.0', 2],
  ['24.7.0', 0],
  ['24.10.0', 0],
  ['25.0.0', 0],
])('set-up on Node.js %s without the package `node` exits with %i', async (version, expected) => {
  write(
    'version.mjs',
    `Object.defineProperty(process, 'versions', { value: { ...process.versions, node: '${version}' } });`,
  );
  const NODE_OPTIONS = `--import=${join(root, 'version.mjs')}`;
  const { code, output } = await setup('exec $SETUP', { ...stores, NODE_OPTIONS });
  expect(code, output).toBe(expected);
  expect(output.includes(`Node.js ${version} is too old: install Node.js 24.7 or newer`)).toBe(
    expected === 2,
  );
});

test.each(['tds', 'test:unit'])('npm run %s needs no store', (name) => {
  expect(scripts[name]).toMatch(/^node infra\/setup\/setup\.mjs --quiet --no-stores && /);
});

const runsNodeTwice = Object.entries(scripts).filter(([, text]) => /^node .* node /.test(text));

test.each(
  runsNodeTwice.flatMap(([name, text]) => ['sh', 'bash'].map((shell) => [name, shell, text] as const)),
)('npm run %s runs, under %s, the Node that set-up installs', async (_, shell, text) => {
  write('second/node', `#!/bin/sh\n[ -e first/node ] && exit 1\ncp third/node first/node\n`, 0o755);
  write('third/node', '#!/bin/sh\necho installed "$@"\n', 0o755);
  mkdirSync(join(root, 'first'));
  const { code, output } = await setup(`exec ${shell} -c "$SCRIPT"`, {
    SCRIPT: text,
    PATH: ['first', 'second'].map((folder) => join(root, folder)).join(':') + ':/usr/bin:/bin',
  });
  expect(output).toMatch(/^installed \S+\.(ts|mjs)\n$/);
  expect(code).toBe(0);
});

test.each([
  ['is Java 11', 'openjdk version "11.0.2" 2019-01-15'],
  ['is Java 8', 'java version "1.8.0_402"'],
  ['has no bin/java that works', ''],
])('set-up names a JAVA_HOME that %s, and installs nothing', async (problem, version) => {
  write('jdk/bin/java', `#!/bin/sh\necho '${version}' >&2\n`, 0o755);
  write('bin/apt-get', '#!/bin/sh\necho apt-get was called >>log\n', 0o755);
  write('bin/env', '#!/bin/sh\nshift\nexec "$@"\n', 0o755);
  write('bin/sudo', '#!/bin/sh\nshift\n[ "$1" = true ] || exec "$@"\n', 0o755);
  const home = join(root, 'jdk');
  const { code, output } = await setup('exec $SETUP', { REDIS_URL: stores.REDIS_URL, JAVA_HOME: home });
  expect(output).toBe(`JAVA_HOME=${home} ${problem}: unset it or point it to Java 17 or newer.\n`);
  expect(code).toBe(2);
  expect(existsSync(join(root, 'log'))).toBe(false);
});
