import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { fileURLToPath } from 'node:url';

import { expect } from 'vitest';
import { z } from 'zod';

import { EXAMPLES_FILE } from '../../../api/http/examples.ts';
import type { Examples } from '../../../api/http/examples.ts';
import type { Answer } from '../api-world.ts';
import { documentOf } from '../document.ts';
import { openApiChecker } from '../openapi.ts';
import type { RunningService } from '../service.ts';

const described = documentOf(
  z.object({ operationId: z.string(), security: z.array(z.record(z.string(), z.unknown())) }),
);

export interface Asked {
  readonly path?: Readonly<Record<string, string>>;
  readonly query?: Readonly<Record<string, string>>;
  readonly body?: unknown;
  readonly headers?: Readonly<Record<string, string>>;
  /** By the session, also where a key is accepted. */
  readonly isBySession?: true;
  /** The expected status; 200 by default. */
  readonly status?: number;
}

type Asks = (id: string, asked?: Asked) => Promise<Answer>;

/** Calls a service and keeps the last answer of each operation, status and media type, and the last body of each named error. */
export interface Recorder {
  readonly recorded: Examples;
  /** The answer, which is as the document describes it; `send` does not keep it. */
  readonly send: Asks;
  readonly ask: Asks;
  /** @param name of the error among those of its status; its code by default */
  readonly refused: (
    id: string,
    asked: Asked & { readonly status: number },
    name?: string,
  ) => Promise<Answer>;
  /** Keeps what has come another way. */
  readonly keepError: (status: number, body: unknown) => void;
  readonly keepText: (id: string, media: string, text: string) => void;
  /** Replaces the token that operations with a session send. */
  readonly useSession: (token: string) => void;
  /** Replaces a text in what is kept from now on. */
  readonly hide: (text: string, shown: string) => void;
}

export async function createRecorder(service: RunningService): Promise<Recorder> {
  const recorded: Examples = { answers: {}, bodies: {}, errors: {} };
  const hidden: [string, string][] = [
    // Names of processes begin with it.
    [`"${hostname()}:`, '"tds-1:'],
    [service.baseUrl, 'https://tds.example.org'],
  ];
  let session = '';
  const call = callsTo(service.baseUrl);
  const complaints = await openApiChecker({ call });
  const { paths } = described.parse((await call('GET', '/api/openapi.json')).json);
  const operations = new Map(
    Object.entries(paths).flatMap(([path, methods]) =>
      Object.entries(methods).map(([method, operation]) => [
        operation.operationId,
        { path, method: method.toUpperCase(), security: operation.security },
      ]),
    ),
  );

  const send = async (id: string, asked: Asked = {}): Promise<Answer> => {
    const operation = operations.get(id);
    if (operation === undefined) throw new Error(`there is no operation ${id}`);
    const { status = 200, path = {}, query = {}, body, headers = {}, isBySession } = asked;
    const names = new Set(operation.security.flatMap((one) => Object.keys(one)));
    const isByKey = names.has('ApiKey') && isBySession !== true;
    const filled = operation.path.replaceAll(/\{(\w+)\}/g, (_, name: string) =>
      encodeURIComponent(path[name] ?? ''),
    );
    const search = new URLSearchParams(query).toString();
    const url = search === '' ? filled : `${filled}?${search}`;
    const answer = await call(operation.method, url, {
      ...(body === undefined ? {} : { json: body }),
      headers: {
        ...(isByKey ? { 'api-key': service.demo.api_key } : {}),
        ...(names.has('Bearer') && !isByKey ? { authorization: `Bearer ${session}` } : {}),
        ...headers,
      },
    });
    const shown = `${id} ${url.slice(0, 300)}: ${answer.text.slice(0, 500)}`;
    expect(answer.status, shown).toBe(status);
    expect(complaints(operation.method, url, answer), shown).toEqual([]);
    return answer;
  };
  const withoutHidden = (text: string): string =>
    hidden.reduce((whole, [found, shown]) => whole.replaceAll(found, shown), text);
  const keep = (id: string, status: number, media: string, example: unknown): void => {
    ((recorded.answers[id] ??= {})[String(status)] ??= {})[media] = example;
  };
  const exampleOf = (json: unknown): unknown =>
    JSON.parse(withoutHidden(JSON.stringify(shortened(withoutSecrets(json)))));

  return {
    recorded,
    send,
    async ask(id, asked = {}) {
      const answer = await send(id, asked);
      if (asked.body !== undefined) recorded.bodies[id] = exampleOf(asked.body);
      const media = answer.headers.get('content-type')?.split(';')[0];
      const isText = media?.startsWith('text/') === true || media?.includes('ndjson') === true;
      if (media !== undefined && isText)
        keep(id, answer.status, media, withoutHidden(firstLines(answer.text)));
      else if (media !== undefined && answer.json !== undefined)
        keep(id, answer.status, media, exampleOf(answer.json));
      return answer;
    },
    async refused(id, asked, name) {
      const answer = await send(id, asked);
      const kept = (recorded.errors[String(asked.status)] ??= {});
      kept[name ?? answer.json.code] = exampleOf(answer.json) as Examples['errors'][string][string];
      return answer;
    },
    keepError(status, body) {
      const error = z.looseObject({ detail: z.string(), code: z.string() }).parse(body);
      (recorded.errors[String(status)] ??= {})[error.code] = error;
    },
    keepText: (id, media, text) => keep(id, 200, media, text),
    useSession: (token) => (session = token),
    hide: (text, shown) => void hidden.push([text, shown]),
  };
}

type Call = (
  method: string,
  path: string,
  options?: { readonly headers?: Readonly<Record<string, string>>; readonly json?: unknown },
) => Promise<Answer>;

function callsTo(base: string): Call {
  return async (method, path, { headers = {}, json } = {}) => {
    const response = await fetch(base + path, {
      method,
      headers: { ...(json === undefined ? {} : { 'content-type': 'application/json' }), ...headers },
      ...(json === undefined ? {} : { body: JSON.stringify(json) }),
    });
    const text = await response.text();
    const isJson = response.headers.get('content-type')?.startsWith('application/json') === true;
    return {
      status: response.status,
      headers: response.headers,
      text,
      json: isJson ? JSON.parse(text) : undefined,
    };
  };
}

/** One object or two values of each list. */
function shortened(value: unknown): unknown {
  if (Array.isArray(value)) return value.slice(0, typeof value[0] === 'object' ? 1 : 2).map(shortened);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, shortened(one)]));
}

const SECRETS = new Set(['key', 'token', 'secret']);

/** Passwords, and the digits of keys, tokens and secrets are replaced, not those of addresses, which are `0x…`. */
function withoutSecrets(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withoutSecrets);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([name, one]) => [
      name,
      name === 'password'
        ? 'correct horse battery staple'
        : SECRETS.has(name) && typeof one === 'string'
          ? one.replace(/^(?!0x)(tds_|whsec_)?[A-Za-z0-9+/_-]{43,}/, (text, prefix = '') =>
              String(prefix).padEnd(text.length, 'A'),
            )
          : withoutSecrets(one),
    ]),
  );
}

/** Two lines of CSV or NDJSON. */
const firstLines = (text: string): string => /^(.*\n){0,2}/.exec(text)?.[0] ?? '';

/** Writes the examples in the order of their names, as `npm run format` leaves them. */
export function writeExamples({ answers, bodies, errors }: Examples): void {
  const path = fileURLToPath(EXAMPLES_FILE);
  const sorted = {
    answers: byName(answers),
    bodies: byName(bodies),
    errors: Object.fromEntries(Object.entries(errors).map(([status, named]) => [status, byName(named)])),
  };
  writeFileSync(path, JSON.stringify(sorted, null, 2));
  const { status, stderr } = spawnSync('oxfmt', ['-c', 'infra/lint/oxfmt.json', path], { encoding: 'utf8' });
  if (status !== 0) throw new Error(`could not format ${path}: ${stderr}`);
}

const byName = <T>(record: Readonly<Record<string, T>>): Record<string, T> =>
  Object.fromEntries(Object.entries(record).toSorted(([one], [other]) => one.localeCompare(other)));
