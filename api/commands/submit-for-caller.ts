import type { CommandBus } from '../../infra/commands/bus.ts';
import type { CommandOf, CommandType } from '../../schemas/messages/commands.ts';
import type { CallerUser, RequestInfo } from '../http/route.ts';
import { acceptedResult, identifyCommand } from './idempotency.ts';
import type { CommandIdentity } from './idempotency.ts';

type RequestedCommand = {
  [T in CommandType]: { readonly type: T; readonly body: CommandOf<T>['body'] };
}[CommandType];

/** Compared with the first request under the same `Idempotency-Key`. */
interface Idempotent {
  readonly request: RequestInfo;
  readonly input: unknown;
}

/**
 * Submits a command of the calling user and returns its result; throws the HTTP error of a rejected one. Without
 * `idempotent` a retry is a new command.
 */
export type SubmitForCaller = (
  user: Pick<CallerUser, 'id'>,
  command: RequestedCommand,
  idempotent?: Idempotent,
) => Promise<Readonly<Record<string, unknown>>>;

export function submitForCaller(commands: CommandBus, secretKey: Buffer): SubmitForCaller {
  return async (user, command, idempotent) => {
    const actor = `user:${user.id}`;
    const identity: CommandIdentity =
      idempotent === undefined
        ? { id: undefined, requestHash: undefined }
        : identifyCommand(secretKey, actor, idempotent.request, idempotent.input);
    return acceptedResult(identity, await commands.submit({ ...command, actor, ...identity }));
  };
}
