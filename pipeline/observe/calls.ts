import PQueue from 'p-queue';

import type { Node } from '../node/types.ts';

/** Limits calls per second, and calls in flight where `concurrency` is given. */
export function paceCalls(
  node: Pick<Node, 'call'>,
  { callsPerSecond, concurrency }: { readonly callsPerSecond: number; readonly concurrency?: number },
): Pick<Node, 'call'> {
  const queue = new PQueue({
    interval: 1000,
    intervalCap: callsPerSecond,
    ...(concurrency === undefined ? {} : { concurrency }),
  });
  return {
    call: (request, at, options = {}) =>
      queue.add(
        () => node.call(request, at, options),
        options.signal === undefined ? {} : { signal: options.signal },
      ),
  };
}
