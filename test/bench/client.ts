import { Agent, request } from 'node:http';

import type { z } from 'zod';

export interface Answered {
  readonly status: number;
  readonly body: string;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
}

export interface Client {
  get(path: string): Promise<Answered>;
  post(path: string, body: unknown): Promise<Answered>;
  put(path: string, body: unknown, more: Readonly<Record<string, string>>): Promise<Answered>;
  /** Sends a request, requires a 2xx and parses the body. */
  read<T>(path: string, schema: z.ZodType<T>): Promise<T>;
  close(): void;
}

/** A cheap client with persistent connections, because it shares the machine with the measured service. */
export function createClient(base: string, headers: Readonly<Record<string, string>> = {}): Client {
  const agent = new Agent({ keepAlive: true, maxSockets: 64 });
  const { hostname, port } = new URL(base);
  const call = (
    method: string,
    path: string,
    body?: unknown,
    more: Readonly<Record<string, string>> = {},
  ): Promise<Answered> =>
    new Promise((resolve, reject) => {
      const payload = body === undefined ? null : JSON.stringify(body);
      const outgoing = request(
        {
          agent,
          hostname,
          port,
          method,
          path,
          headers: payload === null ? headers : { ...headers, ...more, 'content-type': 'application/json' },
        },
        (response) => {
          const parts: Buffer[] = [];
          response.on('data', (part: Buffer) => parts.push(part));
          response.on('error', reject);
          response.on('end', () =>
            resolve({
              status: response.statusCode ?? 0,
              body: Buffer.concat(parts).toString(),
              headers: response.headers,
            }),
          );
        },
      );
      outgoing.on('error', reject);
      outgoing.end(payload ?? undefined);
    });
  const get = (path: string): Promise<Answered> => call('GET', path);
  return {
    get,
    post: (path, body) => call('POST', path, body),
    put: (path, body, more) => call('PUT', path, body, more),
    async read(path, schema) {
      const { status, body } = await get(path);
      if (status < 200 || status > 299) throw new Error(`${path}: ${status} ${body.slice(0, 500)}`);
      return schema.parse(JSON.parse(body));
    },
    close: () => agent.destroy(),
  };
}
