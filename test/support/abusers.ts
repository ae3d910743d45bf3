import { Agent, request } from 'node:http';
import { connect } from 'node:net';
import type { Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';

/** Callers that take more than their share, over real HTTP. All traffic goes to the given address. */

export interface Target {
  /** On loopback. */
  readonly baseUrl: string;
  readonly apiKey: string;
  /** An account in very many transfers, such as the collector of fees. */
  readonly hotAccount: string;
  /** The token of most transfers. */
  readonly hotToken: string;
  /** An account with thousands of tokens. */
  readonly hoarder: string;
}

/** How often each status came; `closed`: without an answer. */
export type Outcomes = Readonly<Record<string, number>>;

export interface Abuser {
  readonly name: string;
  /** Goes on until the signal fires, then leaves without waiting for answers. */
  run(target: Target, signal: AbortSignal): Promise<Outcomes>;
}

/** Requests of one abuser at a time. */
const SIDE_BY_SIDE = 16;
const SLOW_READERS = 50;
const IDLE_CONNECTIONS = 2000;
const BODY_BYTES = 1 << 20;

export const abusers: readonly Abuser[] = [
  repeating('deep pages of the hot account', ({ hotAccount, hotToken }, turn) => {
    const page = 1 + ((turn * 997) % 500);
    return get(
      `/api/transfers/?account=${hotAccount}&token=${hotToken}&order=asc&page=${page}&limit=100&turn=${turn}`,
    );
  }),
  repeating('filters on the hot account', ({ hotAccount, hoarder }, turn) =>
    get(`/api/transfers/?from_account=${hotAccount}&to_account=${hoarder}&turn=${turn}`),
  ),
  repeating('traces of the hot token', ({ hotAccount, hotToken }) =>
    get(`/api/track-transfers/?account=${hotAccount}&token=${hotToken}`),
  ),
  repeating('forced refreshes of thousands of balances', ({ hoarder }) =>
    get(`/api/account-balances/?account_address=${hoarder}&force_refresh=true`),
  ),
  repeating('bodies of 1 MiB', () => ({
    method: 'POST',
    path: '/api/users/auth/login/',
    body: Buffer.alloc(BODY_BYTES, ' '),
  })),
  { name: `${SLOW_READERS} readers of a byte a second`, run: readSlowly },
  { name: `${IDLE_CONNECTIONS} connections that send nothing`, run: stayIdle },
];

/**
 * Starts an abuser in a thread of its own, so that it does not slow those down who are measured. `leave` resolves with what
 * it got.
 */
export function startAbuser({ name }: Abuser, target: Target): { leave(): Promise<Outcomes> } {
  const worker = new Worker(new URL('abuser-worker.ts', import.meta.url), { workerData: { name, target } });
  const ended = new Promise<Outcomes>((resolve, reject) => {
    worker.once('message', resolve);
    worker.once('error', reject);
  });
  // Awaited when it leaves.
  ended.catch(() => {});
  return {
    async leave() {
      worker.postMessage('leave');
      const outcomes = await ended;
      await worker.terminate();
      return outcomes;
    },
  };
}

interface Call {
  readonly method: string;
  readonly path: string;
  readonly body?: Buffer;
}

const get = (path: string): Call => ({ method: 'GET', path });

/** Sends one request after the other, from `SIDE_BY_SIDE` callers. */
function repeating(name: string, callOf: (target: Target, turn: number) => Call): Abuser {
  return {
    name,
    async run(target, signal) {
      const agent = new Agent({ keepAlive: true, maxSockets: SIDE_BY_SIDE });
      const outcomes = new Map<string, number>();
      let turn = 0;
      const caller = async (): Promise<void> => {
        while (!signal.aborted) {
          const outcome = await send(agent, target, callOf(target, (turn += 1)), signal);
          outcomes.set(outcome, (outcomes.get(outcome) ?? 0) + 1);
          // A client that is refused at once would otherwise measure how fast this machine refuses.
          if (!outcome.startsWith('2')) await sleep(20);
        }
      };
      await Promise.all(Array.from({ length: SIDE_BY_SIDE }, caller));
      agent.destroy();
      return Object.fromEntries(outcomes);
    },
  };
}

/** The status, or `closed`; the answer is read and dropped. */
function send(
  agent: Agent,
  { baseUrl, apiKey }: Target,
  { method, path, body }: Call,
  signal: AbortSignal,
): Promise<string> {
  return new Promise((resolve) => {
    const headers = {
      'api-key': apiKey,
      ...(body === undefined ? {} : { 'content-type': 'application/json', 'content-length': body.length }),
    };
    const outgoing = request(new URL(path, baseUrl), { agent, method, headers, signal }, (response) => {
      response.resume();
      response.once('close', () => resolve(response.complete ? String(response.statusCode) : 'closed'));
    });
    outgoing.once('error', () => resolve('closed'));
    outgoing.end(body);
  });
}

const requestText = ({ baseUrl, apiKey }: Target, path: string): string =>
  `GET ${path} HTTP/1.1\r\nHost: ${new URL(baseUrl).host}\r\napi-key: ${apiKey}\r\n\r\n`;

async function openSockets(
  { baseUrl }: Target,
  count: number,
  text: string,
): Promise<{ sockets: Socket[]; closed: () => number }> {
  const { hostname, port } = new URL(baseUrl);
  let closed = 0;
  const sockets = Array.from({ length: count }, () => {
    const socket = connect(Number(port), hostname).pause();
    socket.on('error', () => {});
    socket.once('close', () => (closed += 1));
    if (text !== '') socket.write(text);
    return socket;
  });
  return { sockets, closed: () => closed };
}

/** Each asks for a large answer and takes a byte of it a second. */
async function readSlowly(target: Target, signal: AbortSignal): Promise<Outcomes> {
  const path = `/api/track-transfers/?account=${target.hotAccount}&token=${target.hotToken}`;
  const { sockets, closed } = await openSockets(target, SLOW_READERS, requestText(target, path));
  while (!signal.aborted) {
    for (const socket of sockets) socket.read(1);
    await sleep(1000, undefined, { signal }).catch(() => {});
  }
  const outcomes = { open: SLOW_READERS - closed(), closed: closed() };
  for (const socket of sockets) socket.destroy();
  return outcomes;
}

async function stayIdle(target: Target, signal: AbortSignal): Promise<Outcomes> {
  const { sockets, closed } = await openSockets(target, IDLE_CONNECTIONS, '');
  while (!signal.aborted) await sleep(1000, undefined, { signal }).catch(() => {});
  const outcomes = { open: IDLE_CONNECTIONS - closed(), closed: closed() };
  for (const socket of sockets) socket.destroy();
  return outcomes;
}
