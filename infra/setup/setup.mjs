/**
 * Installs what a fresh clone needs to run: `node infra/setup/setup.mjs [--quiet] [--no-stores] [--tests] [--long]`.
 *
 * Plain JavaScript for Node 20 and newer without dependencies, because it installs them. Each step runs only if something
 * is missing; otherwise the check takes some tens of milliseconds. Downloads go to temporary folders that are renamed when
 * complete, so a killed run leaves nothing incomplete. Concurrent runs wait for each other.
 *
 *   packages    npm ci                                       always
 *   Java        17 or newer, to run the embedded Kafka       unless KAFKA_BROKERS is set, or --no-stores given; with --long
 *   Kafka       its jars, downloaded by Maven to .cache/     unless KAFKA_BROKERS is set, or --no-stores given
 *   classes     an archive of Kafka's, for a faster start    unless KAFKA_BROKERS is set, or --no-stores given
 *   Redis       redis-server                                 unless REDIS_URL is set, or --no-stores given
 *   console     built by Vite, when its sources changed      unless Vite is not installed (npm ci --omit=dev)
 *   pgbouncer   for a test                                   with --tests
 *   Chromium    for the tests of the console, with a font    with --tests
 *   runtimes    Node 20, Deno and Bun, which run the client  with --tests
 *   ClickHouse  a server of version 25.8                     with --long, or TEST_BACKEND=clickhouse-25.8
 *   ZooKeeper   its jars, for tests of a ClickHouse cluster  with --long
 */
import { spawn, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  accessSync,
  constants,
  existsSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  realpathSync,
} from 'node:fs';
import { renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { basename, delimiter, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('../..', import.meta.url));
const cache = join(root, '.cache');
const kafkaHome = join(cache, 'kafka-4.3.0');
const zookeeperHome = join(cache, 'zookeeper-3.9.5');
/** Contains the server of ClickHouse 25.8.2; the wheel of 26.9 has none. */
const chdbWheel = 'chdb==3.7.2';
const clickhouseHome = join(cache, 'clickhouse-25.8.2');
/** Names the Java that made the archive of Kafka's classes, and the folder of the classes. */
const classesStamp = join(kafkaHome, 'classes.java');
/** Packages of the runtimes that the client promises to run in. */
const runtimes = ['node@20.20.0', 'deno@2.9.6', 'bun@1.4.5'];
const runtimesHome = join(cache, `runtimes-${runtimes.map((name) => name.split('@')[1]).join('-')}`);
const quiet = process.argv.includes('--quiet');
const { env } = process;

/** A failed step; the message says what to do. */
class SetupError extends Error {}

const set = (name) => (env[name] ?? '') !== '';
const containers = env['TEST_BACKEND'] === 'testcontainers';
const embedsStores = !process.argv.includes('--no-stores') && !containers;
const wantsKafka = embedsStores && !set('KAFKA_BROKERS');
const wantsRedis = embedsStores && !set('REDIS_URL');
const wantsTests = process.argv.includes('--tests');
const wantsLong = process.argv.includes('--long');
const wantsClickHouse = wantsLong || env['TEST_BACKEND'] === 'clickhouse-25.8';

/** What is missing, in the order of installation. */
function missing() {
  const jars = wantsKafka && !existsSync(join(kafkaHome, 'lib'));
  const zookeeper = wantsLong && !existsSync(zookeeperHome);
  const clickhouse = wantsClickHouse && !existsSync(clickhouseHome);
  return {
    packages: !packagesCurrent(),
    java: (wantsKafka || wantsLong) && (javaVersion() ?? 0) < 17,
    maven: (jars || zookeeper) && find('mvn') === null,
    pip: clickhouse && spawnSync('python3', ['-m', 'pip', '--version']).status !== 0,
    jars,
    zookeeper,
    clickhouse,
    redis: wantsRedis && find('redis-server') === null,
    pgbouncer: wantsTests && find('pgbouncer') === null,
    chromium: wantsTests && find('chromium') === null,
    runtimes: wantsTests && !existsSync(runtimesHome),
    classes: classesOutdated(),
    console: consoleOutdated(),
  };
}

async function main() {
  const [nodeMajor, nodeMinor] = process.versions.node.split('.').map(Number);
  if (nodeMajor < 20) {
    throw new SetupError(`Node.js ${process.versions.node} is too old: install Node.js 20 or newer.`);
  }
  if (Object.values(missing()).some(Boolean)) {
    mkdirSync(cache, { recursive: true });
    const unlock = await lock(join(cache, 'setup.lock'));
    try {
      await install(missing());
    } finally {
      unlock();
    }
  } else if (!quiet) {
    say('Set-up: everything is installed.');
  }
  // The optional package `node` provides the version that runs the service.
  const isTooOld = nodeMajor < 24 || (nodeMajor === 24 && nodeMinor < 7);
  if (isTooOld && !existsSync(join(root, 'node_modules', 'node'))) {
    throw new SetupError(
      `Node.js ${process.versions.node} is too old: install Node.js 24.7 or newer, or the optional npm package node (\`npm ci\`).`,
    );
  }
}

async function install(needs) {
  if (Object.keys(instructions).some((name) => needs[name])) await installSystemPackages(needs);
  const fetching = needs.jars ? [fetchKafka()] : [];
  if (needs.packages) fetching.push(installPackages());
  // Both are awaited, so that no download continues after the other has failed.
  const failed = (await Promise.allSettled(fetching)).find(({ status }) => status === 'rejected');
  if (failed !== undefined) throw failed.reason;
  if (classesOutdated()) await recordClasses();
  if (consoleOutdated()) await buildConsole();
  if (needs.runtimes) await fetchRuntimes();
  if (needs.zookeeper) await fetchZooKeeper();
  if (needs.clickhouse) await fetchClickHouse();
}

// --- npm packages

const lockFile = join(root, 'package-lock.json');
const stampFile = join(root, 'node_modules', '.setup-stamp');

function packagesCurrent() {
  const hash = createHash('sha256').update(readFileSync(lockFile)).digest('hex');
  if (read(stampFile) === hash) return true;
  if (!installedMatchesLock()) return false;
  // Installed by `npm install`: only store the hash, which spares the next start the comparison.
  try {
    writeFileSync(stampFile, hash);
  } catch (error) {
    // Another user has installed them.
    if (!['EACCES', 'EPERM', 'EROFS'].includes(error.code)) throw error;
  }
  return true;
}

/** Compares with the list of installed packages that npm writes to node_modules/.package-lock.json. */
function installedMatchesLock() {
  const installed = json(join(root, 'node_modules', '.package-lock.json'))?.packages;
  const wanted = json(lockFile)?.packages;
  if (installed === undefined || wanted === undefined) return false;
  // A production install (`npm ci --omit=dev`) has no development packages.
  const omitsDev = !Object.values(installed).some(({ dev }) => dev === true);
  return Object.entries(wanted).every(
    ([path, { version, optional, devOptional, dev }]) =>
      path === '' ||
      (installed[path]?.version === version && existsSync(join(root, path))) ||
      (installed[path] === undefined &&
        (optional === true || devOptional === true || (dev === true && omitsDev))),
  );
}

async function installPackages() {
  await npm('packages (npm ci)', ['ci'], 'run `npm ci` and read its output');
  writeFileSync(stampFile, createHash('sha256').update(readFileSync(lockFile)).digest('hex'));
}

async function npm(title, args, advice) {
  const path = env['npm_execpath'];
  const [command, ...before] = path?.endsWith('.js') ? [process.execPath, path] : ['npm'];
  await run(title, command, [...before, ...args, '--no-audit', '--no-fund'], { advice });
}

/** In a folder of their own, because only a test needs them; some bring their program by a script of installation. */
async function fetchRuntimes() {
  const temporary = `${runtimesHome}.${process.pid}`;
  for (const name of readdirSync(cache)) {
    if (name.startsWith('runtimes-')) rmSync(join(cache, name), { recursive: true, force: true });
  }
  mkdirSync(temporary);
  writeFileSync(join(temporary, 'package.json'), '{ "private": true }');
  await npm(
    'Node 20, Deno and Bun (npm install)',
    ['install', '--prefix', temporary, ...runtimes],
    'check that npm can reach its registry',
  );
  renameSync(temporary, runtimesHome);
}

async function fetchZooKeeper() {
  await fetchJars('Apache ZooKeeper 3.9 (by Maven)', zookeeperHome, 'test/support/zookeeper/pom.xml', {
    advice: 'check that Maven can reach its repository',
  });
}

/** pip unpacks into the folder for temporary files, which it would leave full when it is killed. */
async function fetchClickHouse() {
  const temporary = temporaryFor(clickhouseHome);
  mkdirSync(temporary);
  const target = join(temporary, 'target');
  const args = ['-m', 'pip', 'install', '--quiet', '--upgrade', '--no-deps', '--only-binary', ':all:'];
  await run(
    'ClickHouse 25.8 (179 MB, by pip)',
    'env',
    [`TMPDIR=${temporary}`, 'python3', ...args, '--target', target, chdbWheel],
    { advice: 'check that pip can reach its index', attempts: 2 },
  );
  renameSync(target, clickhouseHome);
  rmSync(temporary, { recursive: true });
}

// --- the console

const consoleFolder = join(root, 'console');
const consoleStamp = join(consoleFolder, 'dist', '.sources');
const vite = join(root, 'node_modules', 'vite', 'bin', 'vite.js');

/** Whether the console can be built, and its sources have changed since it was. */
function consoleOutdated() {
  return existsSync(vite) && read(consoleStamp) !== consoleHash();
}

/** Of what the build reads: the console, the client, and the versions of the packages. */
function consoleHash() {
  const hash = createHash('sha256').update(readFileSync(lockFile));
  const names = readdirSync(consoleFolder).filter((name) => !['dist', 'node_modules'].includes(name));
  for (const path of [...names.map((name) => join('console', name)), join('client', 'src')])
    for (const file of filesIn(path)) hash.update(`${file}\n`).update(readFileSync(join(root, file)));
  return hash.digest('hex');
}

/** A file, or all files below a folder, in a fixed order. */
function filesIn(path) {
  if (!statSync(join(root, path)).isDirectory()) return [path];
  return readdirSync(join(root, path))
    .sort()
    .flatMap((name) => filesIn(join(path, name)));
}

async function buildConsole() {
  const sources = consoleHash();
  await run('console (vite build)', node24(), [vite, 'build', 'console'], {
    advice: 'run `npm run build -w console` and read its output',
  });
  writeFileSync(consoleStamp, sources);
}

// --- Kafka

async function fetchKafka() {
  await fetchJars('Apache Kafka 4.3 (45 jars, 44 MB, by Maven)', kafkaHome, 'infra/embedded/kafka/pom.xml', {
    advice: 'check that Maven can reach its repository, or set KAFKA_BROKERS to your own Kafka',
  });
}

/** Copies what the project file depends on to `home`/lib. */
async function fetchJars(title, home, pom, { advice }) {
  const temporary = temporaryFor(home);
  const goal = ['dependency:copy-dependencies', `-DoutputDirectory=${join(temporary, 'lib')}`];
  await run(title, 'mvn', ['-q', '-B', '-f', join(root, pom), ...goal], { advice, attempts: 2 });
  rmSync(home, { recursive: true, force: true });
  renameSync(temporary, home);
}

/** A folder to fill beside `home`; what killed runs left of it is removed. */
function temporaryFor(home) {
  for (const name of readdirSync(cache)) {
    if (name.startsWith(`${basename(home)}.`)) rmSync(join(cache, name), { recursive: true, force: true });
  }
  return `${home}.${process.pid}`;
}

/** Whether Kafka is installed, and the archive was made by another Java or not at all. */
function classesOutdated() {
  return (
    wantsKafka &&
    existsSync(join(kafkaHome, 'lib')) &&
    existsSync(join(root, 'node_modules', 'kafkajs')) &&
    (javaVersion() ?? 0) >= 17 &&
    isWritable(kafkaHome) &&
    read(classesStamp) !== classesKey()
  );
}

/** What an archive is good for. */
function classesKey() {
  return `${json(join(cache, 'java.json'))?.key} ${realpathSync(join(kafkaHome, 'lib'))}`;
}

/** Kafka starts without the archive, too, so a failure is only reported. */
async function recordClasses() {
  const archive = join(kafkaHome, 'classes.jsa');
  const temporary = `${archive}.${process.pid}`;
  try {
    rmSync(archive, { force: true });
    const script = join(root, 'infra', 'embedded', 'kafka', 'record-classes.ts');
    await run("archive of Kafka's classes", node24(), [script, temporary], {
      advice: 'nothing: Kafka starts without it, some 2 s more slowly',
    });
    renameSync(temporary, archive);
  } catch (error) {
    say(`Set-up: Kafka will start more slowly: ${error.message}`);
    rmSync(temporary, { force: true });
  }
  writeFileSync(classesStamp, classesKey());
}

// --- system packages

/** Major version of the Java that infra/embedded/kafka runs, or null; cached, because starting a JVM takes 0.1 s. */
function javaVersion() {
  const java = set('JAVA_HOME') ? join(env['JAVA_HOME'], 'bin', 'java') : find('java');
  if (java === null || !existsSync(java)) return null;
  const file = realpathSync(java);
  const key = `${file} ${statSync(file).mtimeMs}`;
  const known = json(join(cache, 'java.json'));
  if (known?.key === key) return known.version;
  const result = spawnSync(file, ['-version'], { encoding: 'utf8' });
  const [, first, second] =
    /version "(\d+)(?:\.(\d+))?/.exec(`${result.stderr ?? ''}${result.stdout ?? ''}`) ?? [];
  if (first === undefined) return null;
  const version = Number(first === '1' ? second : first);
  mkdirSync(cache, { recursive: true });
  writeFileSync(join(cache, 'java.json'), JSON.stringify({ key, version }));
  return version;
}

const instructions = {
  java: 'Java 17 or newer is missing: install it (Debian: apt-get install openjdk-17-jre-headless), or set KAFKA_BROKERS to your own Kafka.',
  maven:
    'Maven is missing, which downloads the jars of Kafka, and of ZooKeeper for long tests: install it (Debian: apt-get install maven), or set KAFKA_BROKERS to your own Kafka.',
  redis:
    'redis-server is missing: install it (Debian: apt-get install redis-server), or set REDIS_URL to your own Redis.',
  pip: '`python3 -m pip` fails, which installs a ClickHouse server for tests: install it (Debian: apt-get install python3-pip).',
  pgbouncer: 'pgbouncer, which a test needs, is missing: install it (Debian: apt-get install pgbouncer).',
  chromium:
    'Chromium, which a test needs, is missing: install it (Debian: apt-get install chromium fonts-dejavu-core).',
};

async function installSystemPackages(needs) {
  if (needs.java && set('JAVA_HOME')) {
    const version = javaVersion();
    const problem = version === null ? 'has no bin/java that works' : `is Java ${version}`;
    throw new SetupError(
      `JAVA_HOME=${env['JAVA_HOME']} ${problem}: unset it or point it to Java 17 or newer.`,
    );
  }
  const names = Object.keys(instructions).filter((name) => needs[name]);
  const advice = names.map((name) => instructions[name]).join('\n');
  const asRoot = process.getuid?.() === 0 ? [] : ['sudo', '-n'];
  const mayInstall =
    find('apt-get') !== null &&
    (asRoot.length === 0 || (find('sudo') !== null && spawnSync('sudo', ['-n', 'true']).status === 0));
  if (!mayInstall) throw new SetupError(advice);

  const apt = async (title, ...args) => {
    const [command, ...rest] = [
      ...asRoot,
      'env',
      'DEBIAN_FRONTEND=noninteractive',
      'apt-get',
      '-qq',
      '-o',
      'DPkg::Lock::Timeout=120',
      ...args,
    ];
    await run(title, command, rest, { advice, attempts: 2 });
  };
  await apt('package lists (apt-get update)', 'update');
  // The available Java version depends on the Debian release.
  const java17 = spawnSync('apt-cache', ['show', 'openjdk-17-jre-headless']).status === 0;
  const packages = {
    java: java17 ? 'openjdk-17-jre-headless' : 'default-jre-headless',
    maven: 'maven',
    redis: 'redis-server',
    pip: 'python3-pip',
    pgbouncer: 'pgbouncer',
    chromium: ['chromium', 'fonts-dejavu-core'],
  };
  const wanted = names.flatMap((name) => packages[name]);
  await apt(`${wanted.join(', ')} (apt-get install)`, 'install', '-y', '--no-install-recommends', ...wanted);
  for (const name of names) if (missing()[name]) throw new SetupError(instructions[name]);
}

// --- helpers

/** The Node that runs the service. */
function node24() {
  const installed = join(root, 'node_modules', 'node', 'bin', 'node');
  return existsSync(installed) ? installed : process.execPath;
}

function find(program) {
  // Debian leaves /usr/sbin out of the PATH of users.
  for (const folder of [...(env['PATH'] ?? '').split(delimiter), '/usr/sbin']) {
    const file = join(folder, program);
    try {
      accessSync(file, constants.X_OK);
      return file;
    } catch {
      // Not here.
    }
  }
  return null;
}

function isWritable(folder) {
  try {
    accessSync(folder, constants.W_OK);
    return true;
  } catch {
    return false;
  }
}

function read(file) {
  try {
    return readFileSync(file, 'utf8').trim();
  } catch {
    return null;
  }
}

function json(file) {
  try {
    return JSON.parse(readFileSync(file, 'utf8'));
  } catch {
    return undefined;
  }
}

function say(line) {
  process.stdout.write(`${line}\n`);
}

/** Runs a program without showing its output; the error of a failure contains an excerpt. */
async function run(title, command, args, { advice, attempts = 1 }) {
  say(`Set-up: ${title} …`);
  const began = Date.now();
  const ticking = setInterval(() => say(`Set-up: ${title}: ${seconds(began)} elapsed`), 15_000);
  try {
    for (let attempt = 1; ; attempt++) {
      const { code, output } = await collect(command, args);
      if (code === 0) break;
      if (attempt < attempts) continue;
      throw new SetupError(`${title} failed (code ${code}):\n${excerpt(output)}\nWhat to do: ${advice}`);
    }
  } finally {
    clearInterval(ticking);
  }
  say(`Set-up: ${title}: done in ${seconds(began)}`);
}

/** The first and last lines: npm prints the cause of a failure first, Maven and apt last. */
function excerpt(output) {
  const lines = output
    .split('\n')
    .filter((line) => line.trim() !== '' && !/^npm (warn|notice)/.test(line))
    .map((line) => `  ${line}`);
  return lines.length <= 24
    ? lines.join('\n')
    : [...lines.slice(0, 12), '  …', ...lines.slice(-12)].join('\n');
}

/** The programs that run and end with the set-up: not apt-get, as dpkg would leave packages half configured. */
const children = new Set();
let isStopping = false;

function collect(command, args) {
  return new Promise((done) => {
    const child = spawn(command, args, { cwd: root, stdio: ['ignore', 'pipe', 'pipe'] });
    if (!args.includes('apt-get')) children.add(child);
    let output = '';
    for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk) => (output += chunk));
    const end = (outcome) => {
      children.delete(child);
      // Nothing is tried again or reported: the set-up ends by its signal.
      if (!isStopping) done(outcome);
    };
    child.on('error', (error) => end({ code: 127, output: error.message }));
    child.on('close', (code) => end({ code: code ?? 1, output }));
  });
}

function seconds(since) {
  return `${((Date.now() - since) / 1000).toFixed(1)} s`;
}

/**
 * Creating a folder is atomic; the process id and start time in it distinguish a held lock from a stale one: process ids are
 * reused.
 */
async function lock(folder) {
  const pidFile = join(folder, 'pid');
  const own = `${process.pid} ${startTime(process.pid)}`;
  for (let announced = false, recovered = false; ;) {
    try {
      mkdirSync(folder);
      writeFileSync(pidFile, own);
      // Two processes that found the same stale lock may remove each other's: the one whose id remains holds it.
      if (recovered) await sleep(100);
      if (read(pidFile) !== own) continue;
      return unlockOnSignals(folder);
    } catch (error) {
      if (error.code !== 'EEXIST') throw error;
    }
    if (!held(folder, pidFile)) {
      rmSync(folder, { recursive: true, force: true });
      recovered = true;
      continue;
    }
    if (!announced) {
      const pid = read(pidFile)?.split(' ')[0] ?? 'unknown';
      say(`Set-up: waiting for another set-up, process ${pid}, which holds ${folder} …`);
    }
    announced = true;
    await sleep(200);
  }
}

/** Returns what removes the lock; SIGINT, SIGTERM and SIGHUP remove it, too, once npm and Maven have ended. */
function unlockOnSignals(folder) {
  const signals = ['SIGINT', 'SIGTERM', 'SIGHUP'];
  const unlock = () => {
    for (const signal of signals) process.off(signal, onSignal);
    rmSync(folder, { recursive: true, force: true });
  };
  const onSignal = (signal) => {
    isStopping = true;
    const running = [...children].filter((child) => child.kill(signal));
    const exits = running.map((child) => new Promise((done) => child.once('exit', done)));
    void Promise.all(exits).then(() => {
      unlock();
      process.kill(process.pid, signal);
    });
  };
  for (const signal of signals) process.on(signal, onSignal);
  return unlock;
}

/** Of a process, in ticks since the system started; `-` where there is no /proc. */
function startTime(pid) {
  const stat = read(`/proc/${pid}/stat`);
  // The second field, the name in parentheses, may contain blanks. The start time is the 22nd.
  return stat?.slice(stat.lastIndexOf(')') + 2).split(' ')[19] ?? '-';
}

function held(folder, pidFile) {
  const [id, began = '-'] = read(pidFile)?.split(' ') ?? [];
  const pid = Number(id);
  if (pid === process.pid) return false;
  if (Number.isInteger(pid) && pid > 0) {
    const now = startTime(pid);
    if (began !== '-' && now !== '-' && began !== now) return false;
    try {
      process.kill(pid, 0);
      return true;
    } catch (error) {
      return error.code === 'EPERM';
    }
  }
  // The process has not written its id yet, or was killed before it could.
  try {
    return Date.now() - statSync(folder).mtimeMs < 5000;
  } catch {
    return false;
  }
}

try {
  await main();
} catch (error) {
  process.stderr.write(
    error instanceof SetupError ? `${error.message}\n` : `Set-up failed: ${error.stack}\n`,
  );
  // 1 would mean differences, for `npm run tds -- verify`.
  process.exitCode = 2;
}
