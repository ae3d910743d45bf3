import type { CommandOf, CommandType } from '../../schemas/messages/commands.ts';
import type { CallerUser, RequestInfo } from '../http/route.ts';
import type { CommandsFor } from './command-queue.ts';
import { acceptedResult, checkUnlessRetry, identifyCommand } from './idempotency.ts';
import type { CommandIdentity } from './idempotency.ts';

type RequestedCommand = {
  [T in CommandType]: { readonly type: T; readonly body: CommandOf<T>['body'] };
}[CommandType];

export interface SubmitDeps {
  readonly commandsFor: CommandsFor;
  readonly secretKey: Buffer;
}

interface Origin {
  readonly request: RequestInfo;
  /** Compared with the first request under the same `Idempotency-Key`; without it a retry is a new command. */
  readonly input?: unknown;
  /** Names the command among several of one request. */
  readonly part?: string;
  /** Throws where the command must not be appended; not called for a retry. */
  readonly check?: () => Promise<void> | void;
}

/** Submits a command of the calling user and returns its result; throws the HTTP error of a rejected one. */
type SubmitForCaller = (
  user: Pick<CallerUser, 'id'>,
  command: RequestedCommand,
  origin: Origin,
) => Promise<Readonly<Record<string, unknown>>>;

export function submitForCaller({ commandsFor, secretKey }: SubmitDeps): SubmitForCaller {
  return async (user, command, { request, input, part, check }) => {
    const actor = `user:${user.id}`;
    const identity: CommandIdentity =
      input === undefined
        ? { id: undefined, requestHash: undefined }
        : identifyCommand(secretKey, actor, request, input, part);
    const commands = commandsFor(request);
    if (check !== undefined) await checkUnlessRetry(commands, command.type, identity, check);
    const outcome = await commands.submit({ ...command, actor, ...identity });
    return acceptedResult(identity, outcome);
  };
}
