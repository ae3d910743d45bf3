import { randomUUID } from 'node:crypto';

import { z } from 'zod';

import { pollUntil } from '../../infra/retry.ts';
import { operationAnswer, operationsAnswer } from '../../schemas/api/admin/operations.ts';
import type { OperationAnswer } from '../../schemas/api/admin/operations.ts';
import type { CommandOf } from '../../schemas/messages/commands.ts';
import type { CommandsFor } from '../commands/command-queue.ts';
import { acceptedResult, identifyCommand } from '../commands/idempotency.ts';
import { HttpError, orNotFound } from '../http/errors.ts';
import { text } from '../http/params.ts';
import { defineRoute } from '../http/route.ts';
import type { CallerUser, RequestInfo, Route } from '../http/route.ts';
import type { Operator } from './operator.ts';
import { answered } from './operator-errors.ts';
import { entryId } from './quarantine-routes.ts';

export interface OperationRouteDeps {
  readonly operator: Operator;
  readonly commandsFor: CommandsFor;
  readonly secretKey: Buffer;
  /** Unix milliseconds. */
  readonly now: () => number;
}

/** How long a request waits for a process of `project` to carry it out; then it is answered 202. */
const WAIT_MS = 5000;
const POLL_MS = 200;

const common = { tag: 'Administration', auth: 'admin' } as const;

export function operationRoutes(deps: OperationRouteDeps): Route[] {
  return [
    quarantineRoute(deps, 'retry'),
    quarantineRoute(deps, 'skip'),
    startRebuildRoute(deps),
    abortRebuildRoute(deps),
    startVerificationRoute(deps),
    listRoute(deps),
    showRoute(deps),
  ];
}

const AFTER = `Returns 200 once it is done, 409 with the reason if it cannot be done, or 202 after ${WAIT_MS / 1000} s if it still runs: then poll \`/api/admin/operations/{id}/\`.`;
const responses = { 200: operationAnswer, 202: operationAnswer };
const QUARANTINE = {
  retry: {
    id: 'retryQuarantined',
    summary: 'Retry an entry: repair the block of an event, or resume the projections halted on a message',
  },
  skip: {
    id: 'skipQuarantined',
    summary: 'Skip an entry: accept that an event stays undecoded, or make projections skip a message',
  },
} as const;

function quarantineRoute(deps: OperationRouteDeps, what: 'retry' | 'skip'): Route {
  return defineRoute({
    ...QUARANTINE[what],
    ...common,
    method: 'POST',
    path: `/api/admin/quarantine/{id}/${what}/`,
    description: `The same as \`tds quarantine ${what}\`. ${AFTER}`,
    isIdempotent: true,
    params: z.object({ id: entryId }),
    response: responses,
    async handler({ input: { params }, user, request }) {
      const check = async () => await answered(deps.operator.quarantined(params.id));
      const body = { user_id: user.id, entry_id: params.id };
      return await carriedOut(deps, { type: `quarantine.${what}`, body }, { user, request, check });
    },
  });
}

const projection = text({ min: 1, max: 100, description: 'Name of a projection' });

function startRebuildRoute(deps: OperationRouteDeps): Route {
  return defineRoute({
    id: 'startRebuild',
    ...common,
    method: 'POST',
    path: '/api/admin/projections/{name}/rebuild/',
    summary: 'Rebuild a projection from the log, compare it with the served one, and swap',
    description: `Runs \`tds rebuild NAME\` in a process of \`project\`. Returns 202 once it has started, or after ${WAIT_MS / 1000} s. Its progress is in \`/api/admin/projections/\`.`,
    isIdempotent: true,
    params: z.object({ name: projection }),
    body: z.object({
      swap: z.boolean().optional().meta({ description: 'false: build and compare only; true by default' }),
    }),
    response: { 202: operationAnswer },
    async handler({ input: { params, body: input }, user, request }) {
      const check = async (): Promise<void> => {
        const { is_running: isRunning } = await answered(deps.operator.rebuilding(params.name));
        if (isRunning)
          throw new HttpError(409, 'conflict', `A rebuild of ${params.name} is running already.`);
      };
      const body = { user_id: user.id, projection: params.name, swap: input.swap ?? true };
      const begun = await requested(deps, { type: 'rebuild.start', body }, { user, request, check });
      return { status: 202, body: begun };
    },
  });
}

function abortRebuildRoute(deps: OperationRouteDeps): Route {
  return defineRoute({
    id: 'abortRebuild',
    ...common,
    method: 'POST',
    path: '/api/admin/projections/{name}/rebuild/abort/',
    summary: 'Abort the running rebuild of a projection',
    description: `Like Ctrl-C in \`tds rebuild\`, wherever the rebuild was started: the served build stays, and the next run resumes. ${AFTER}`,
    isIdempotent: true,
    params: z.object({ name: projection }),
    response: responses,
    async handler({ input: { params }, user, request }) {
      const check = async () => await answered(deps.operator.rebuilding(params.name));
      const body = { user_id: user.id, projection: params.name };
      return await carriedOut(deps, { type: 'rebuild.abort', body }, { user, request, check });
    },
  });
}

function startVerificationRoute(deps: OperationRouteDeps): Route {
  return defineRoute({
    id: 'startVerification',
    ...common,
    method: 'POST',
    path: '/api/admin/verification/',
    summary: 'Compare the log with block headers, tables, sums and checkpoints',
    description: `Runs \`tds verify\`, without repairs, in a process of \`project\`. Returns 202 once it has started, or after ${WAIT_MS / 1000} s; poll \`/api/admin/operations/{id}/\`: at the end, its \`detail\` is the report.`,
    isIdempotent: true,
    response: { 202: operationAnswer },
    async handler({ user, request }) {
      const check = async (): Promise<void> => {
        const isRunning = (await deps.operator.operations(null)).some(
          ({ operation, state }) => operation === 'verify.start' && state === 'running',
        );
        if (isRunning) throw new HttpError(409, 'conflict', 'A verification is running already.');
      };
      const body = { user_id: user.id };
      const begun = await requested(deps, { type: 'verify.start', body }, { user, request, check });
      return { status: 202, body: begun };
    },
  });
}

function listRoute({ operator }: OperationRouteDeps): Route {
  return defineRoute({
    id: 'listOperations',
    ...common,
    method: 'GET',
    path: '/api/admin/operations/',
    summary: 'List the operations that admins requested, newest first',
    description: 'The last 50 operations that a process of `project` has begun; not those of `tds` commands.',
    limits: ['Operations: the last 50'],
    response: { 200: operationsAnswer },
    handler: async () => ({ status: 200, body: { results: [...(await operator.operations(null))] } }),
  });
}

function showRoute({ operator }: OperationRouteDeps): Route {
  return defineRoute({
    id: 'getOperation',
    ...common,
    method: 'GET',
    path: '/api/admin/operations/{id}/',
    summary: 'Show one operation, with what was done',
    description: '404 until a process of `project` has begun it.',
    params: z.object({ id: text({ min: 1, max: 200, description: 'Id of an operation' }) }),
    response: { 200: operationAnswer },
    async handler({ input: { params } }) {
      const [found] = await operator.operations(params.id);
      return { status: 200, body: orNotFound(found) };
    },
  });
}

type OperationRequest = {
  [T in OperationAnswer['operation']]: { readonly type: T; readonly body: CommandOf<T>['body'] };
}[OperationAnswer['operation']];
interface Asker {
  readonly user: CallerUser;
  readonly request: RequestInfo;
  /** Throws where the operation cannot be done; not asked again for a repeated request. */
  readonly check: () => Promise<unknown>;
}

/** Appends the command, and waits until the operation has ended, or for `WAIT_MS`. */
async function carriedOut(
  deps: OperationRouteDeps,
  command: OperationRequest,
  asker: Asker,
): Promise<{ status: 200 | 202; body: OperationAnswer }> {
  const ended = await requested(deps, command, asker, ['done', 'failed']);
  return { status: ended.state === 'done' ? 200 : 202, body: ended };
}

/**
 * Appends the command, and waits until the operation is in one of these states, by default until it has begun, or for `WAIT_MS`;
 * rejects one that has failed.
 */
async function requested(
  { operator, commandsFor, secretKey, now }: OperationRouteDeps,
  command: OperationRequest,
  { user, request, check }: Asker,
  awaited: readonly OperationAnswer['state'][] = ['running', 'done', 'failed'],
): Promise<OperationAnswer> {
  const actor = `user:${user.id}`;
  const identity = identifyCommand(secretKey, actor, request, command.body);
  const id = identity.id ?? randomUUID();
  const at = now();
  const isRepeated = identity.id !== undefined && (await operator.operations(id)).length > 0;
  if (!isRepeated) await check();
  const outcome = await commandsFor(request).submit({
    ...command,
    actor,
    id,
    requestHash: identity.requestHash,
  });
  acceptedResult(identity, outcome);
  const found = await pollUntil(
    async () => (await operator.operations(id))[0] ?? null,
    (one) => one !== null && awaited.includes(one.state),
    { everyMs: POLL_MS, withinMs: WAIT_MS },
  );
  if (found?.state === 'failed')
    throw new HttpError(409, 'conflict', found.detail ?? 'The operation failed.');
  return (
    found ?? {
      id,
      operation: command.type,
      subject: subjectOf(command),
      state: 'requested',
      detail: null,
      requested_by: actor,
      requested_at: new Date(at).toISOString(),
      finished_at: null,
    }
  );
}

function subjectOf({ body }: OperationRequest): string {
  if ('entry_id' in body) return body.entry_id;
  return 'projection' in body ? body.projection : 'all';
}
