import PQueue from 'p-queue';

import { createRate } from '../../infra/rate.ts';
import type { Node } from '../node/types.ts';

/** Limits calls per second, and calls in flight where `concurrency` is given. */
export function paceCalls(
  node: Pick<Node, 'call'>,
  { callsPerSecond, concurrency }: { readonly callsPerSecond: number; readonly concurrency?: number },
): Pick<Node, 'call'> {
  const queue = new PQueue(concurrency === undefined ? {} : { concurrency });
  const turn = createRate(callsPerSecond);
  return {
    call: (request, at, options = {}) =>
      queue.add(
        async () => {
          await turn(options.signal);
          return await node.call(request, at, options);
        },
        options.signal === undefined ? {} : { signal: options.signal },
      ),
  };
}
