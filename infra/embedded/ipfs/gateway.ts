import type { IncomingMessage, ServerResponse } from 'node:http';
import { setTimeout as pause } from 'node:timers/promises';

import { z } from 'zod';

import { readBody, send, serveOnLoopback } from '../loopback.ts';
import { createGatewayFaults, gatewayFaultSchema } from './faults.ts';
import type { GatewayFault, GatewayFaults } from './faults.ts';
import { fileAt } from './files.ts';

export interface SimulatedGateway {
  /** The base before `/ipfs/…`. */
  readonly url: string;
  readonly faults: GatewayFaults;
  /** Paths of the calls so far. */
  readonly calls: readonly string[];
  close(): Promise<void>;
}

const commandSchema = z.discriminatedUnion('command', [
  z.object({ command: z.literal('fault'), fault: gatewayFaultSchema }),
  z.object({ command: z.literal('clearFaults') }),
]);

/**
 * An IPFS gateway on loopback that has the metadata and the pictures of the simulated chain's NFTs, for whoever has no
 * network or wants faults: `POST /control {"command":"fault","fault":{"kind":…}}` and `{"command":"clearFaults"}`.
 */
export async function createSimulatedGateway(
  options: {
    readonly port?: number;
    /** Answers /control, over HTTP. */
    readonly control?: boolean;
  } = {},
): Promise<SimulatedGateway> {
  const { port = 0, control = false } = options;
  const faults = createGatewayFaults();
  const calls: string[] = [];

  const command = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    if (request.method === 'POST') {
      const asked = commandSchema.parse(JSON.parse(await readBody(request)));
      if (asked.command === 'fault') faults.add(asked.fault);
      else faults.clear();
    }
    send(response, 200, JSON.stringify({ faults: faults.list(), calls: calls.length }));
  };

  const answer = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const { pathname } = new URL(request.url ?? '/', 'http://gateway');
    if (pathname === '/control' && control) return await command(request, response);
    calls.push(pathname);
    if (calls.length > 100_000) calls.shift();
    const strikes = faults.strike(pathname);
    const struck = (kind: GatewayFault['kind']) => strikes.find((fault) => fault.kind === kind);
    await pause(struck('latency')?.ms ?? 0);
    if (struck('hang') !== undefined) return;
    const other = strikes.flatMap((fault) => faultyAnswer(fault) ?? []).at(0);
    if (other !== undefined) return write(response, other);
    const path = pathname.startsWith('/ipfs/') ? pathname.slice('/ipfs/'.length) : '';
    const file = fileAt(path);
    if (file === null) return write(response, { status: 404, body: 'no such file' });
    if (struck('drop') !== undefined) {
      response.writeHead(200, { 'content-length': file.body.length });
      response.write(file.body.slice(0, 10));
      response.destroy();
      return;
    }
    write(response, { status: 200, body: file.body, headers: { 'content-type': file.type } });
  };

  const { url, close } = await serveOnLoopback((request, response) => {
    answer(request, response).catch((error: unknown) => {
      const message = error instanceof Error ? error.message : String(error);
      send(response, 400, JSON.stringify({ message }));
    });
  }, port);
  return {
    url,
    faults,
    calls,
    close,
  };
}

interface Answer {
  readonly status: number;
  readonly body: string;
  readonly headers?: Readonly<Record<string, string>>;
}

function write(response: ServerResponse, { status, body, headers = {} }: Answer): void {
  response.writeHead(status, { 'content-length': Buffer.byteLength(body), ...headers });
  response.end(body);
}

/** What is answered in the place of a file; null where the fault leaves it as it is. */
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
