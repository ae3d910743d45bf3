import type { IncomingMessage, ServerResponse } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';

import { answerGateway } from '../../infra/embedded/ipfs/gateway.ts';
import { serveOnLoopback } from '../../infra/embedded/loopback.ts';

/** A fault of the simulated gateway; the comment of each kind names the other fields it takes. */
interface GatewayFault {
  readonly kind:
    | 'latency' // responds after `ms`
    | 'status' // responds with `status`; default: 500
    | 'hang' // never responds
    | 'body' // `text` with status 200, as `type`; default: an HTML page
    | 'huge' // `bytes` of JSON; default: 4,000,000
    | 'nested' // `depth` nested arrays; default: 200,000
    | 'redirect' // to `to`
    | 'drop'; // closes the connection in the middle of the response
  /** Part of the paths that it applies to; default: all. */
  readonly path?: string;
  /** Number of calls it applies to; default: all until it is cleared. */
  readonly times?: number;
  readonly ms?: number;
  readonly status?: number;
  readonly text?: string;
  readonly type?: string;
  readonly bytes?: number;
  readonly depth?: number;
  readonly to?: string;
}

interface GatewayFaults {
  add(fault: GatewayFault): void;
  clear(): void;
  list(): readonly { readonly fault: GatewayFault; readonly struck: number }[];
  /** The faults that apply to a call; each is counted. */
  strike(path: string): readonly GatewayFault[];
}

function createGatewayFaults(): GatewayFaults {
  let active: { fault: GatewayFault; struck: number }[] = [];
  return {
    add: (fault) => void active.push({ fault, struck: 0 }),
    clear: () => {
      active = [];
    },
    list: () => active.map(({ fault, struck }) => ({ fault, struck })),
    strike: (path) =>
      active
        .filter((one) => {
          const { times = Infinity, path: part = '' } = one.fault;
          if (one.struck >= times || !path.includes(part)) return false;
          one.struck += 1;
          return true;
        })
        .map(({ fault }) => fault),
  };
}

export interface SimulatedGateway {
  /** The base before `/ipfs/…`. */
  readonly url: string;
  readonly faults: GatewayFaults;
  /** Paths of the calls so far. */
  readonly calls: readonly string[];
  close(): Promise<void>;
}

/** The simulated IPFS gateway in this process, with faults. */
export async function createSimulatedGateway(): Promise<SimulatedGateway> {
  const faults = createGatewayFaults();
  const calls: string[] = [];

  async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { pathname } = new URL(request.url ?? '/', 'http://gateway');
    calls.push(pathname);
    const strikes = faults.strike(pathname);
    const struck = (kind: GatewayFault['kind']) => strikes.find((fault) => fault.kind === kind);
    await sleep(struck('latency')?.ms ?? 0);
    if (struck('hang') !== undefined) return;
    const faulty = strikes.flatMap((fault) => faultyAnswer(fault) ?? []).at(0);
    if (faulty !== undefined) {
      const { status, body, headers = {} } = faulty;
      response.writeHead(status, { 'content-length': Buffer.byteLength(body), ...headers });
      response.end(body);
    } else if (struck('drop') !== undefined) {
      response.writeHead(200, { 'content-length': 1000 });
      response.write('{"name":"');
      response.destroy();
    } else answerGateway(request, response);
  }

  const { url, close } = await serveOnLoopback((request, response) => {
    answer(request, response).catch(() => response.destroy());
  });
  return { url, faults, calls, close };
}

interface Answer {
  readonly status: number;
  readonly body: string;
  readonly headers?: Readonly<Record<string, string>>;
}

/** The answer in place of the file; null if the fault does not replace it. */
function faultyAnswer(fault: GatewayFault): Answer | null {
  switch (fault.kind) {
    case 'status':
      return { status: fault.status ?? 500, body: 'a fault' };
    case 'body': {
      const { text = '<!doctype html><p>Checking your browser', type = 'text/html' } = fault;
      return { status: 200, body: text, headers: { 'content-type': type } };
    }
    case 'huge':
      return { status: 200, body: `{"name":"${'x'.repeat(fault.bytes ?? 4_000_000)}"}` };
    case 'nested': {
      const depth = fault.depth ?? 200_000;
      return { status: 200, body: `{"name":"deep","attributes":${'['.repeat(depth)}${']'.repeat(depth)}}` };
    }
    case 'redirect':
      return { status: 302, body: '', headers: { location: fault.to ?? 'http://127.0.0.1:1/' } };
    case 'latency':
    case 'hang':
    case 'drop':
      return null;
  }
}
