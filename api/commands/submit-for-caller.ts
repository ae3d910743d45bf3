import { randomUUID } from 'node:crypto';

import type { CommandOf, CommandType } from '../../schemas/messages/commands.ts';
import type { CommandBus } from '../../infra/commands/bus.ts';
import { acceptedResult, identifyCommand } from './idempotency.ts';
import type { CallerUser, RequestInfo } from '../http/route.ts';

/** What a caller wants done. */
type Wish = {
  [T in CommandType]: { readonly type: T; readonly body: CommandOf<T>['body'] };
}[CommandType];

/** By which a repeat under the same `Idempotency-Key` is known: the request, and all that was sent with it. */
interface Asked {
  readonly request: RequestInfo;
  readonly input: unknown;
}

/**
 * Has a command of the user who calls decided, and gives its result; throws what a refusal is answered with. Without
 * `asked` a repeat is a command of its own.
 */
export type SubmitForCaller = (
  user: Pick<CallerUser, 'id'>,
  wish: Wish,
  asked?: Asked,
) => Promise<Readonly<Record<string, unknown>>>;

export function submitForCaller(commands: CommandBus, secretKey: Buffer): SubmitForCaller {
  return async (user, wish, asked) => {
    const actor = `user:${user.id}`;
    const command =
      asked === undefined
        ? { id: randomUUID(), requestHash: undefined }
        : identifyCommand(secretKey, actor, asked.request, asked.input);
    return acceptedResult(command, await commands.submit({ ...wish, actor, ...command }));
  };
}
