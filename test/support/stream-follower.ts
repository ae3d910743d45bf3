import { z } from 'zod';

import type { Random } from './random.ts';
import type { RunningService } from './service.ts';
import { StreamViolation, apply, createHeld, readEvents, readLines } from './stream-client.ts';
import type { Held, L1Bounds, StreamMessage } from './stream-client.ts';
import { heldLines } from './stream-oracle.ts';
import type { StreamKind, StreamOracle } from './stream-oracle.ts';

/** A client that is cut at random moments, and goes on with its newest cursor. */
export interface StreamFollower {
  readonly kind: StreamKind;
  readonly held: Held;
  readonly log: readonly StreamMessage[];
  /** What broke the promises of the stream. */
  readonly problems: readonly string[];
  close(): Promise<void>;
}

export interface FollowerWorld {
  readonly service: Pick<RunningService, 'baseUrl' | 'demo'>;
  readonly oracle: StreamOracle;
  /** Of the messages that are sent now. */
  readonly l1: () => L1Bounds;
}

export function followStream(
  kind: StreamKind,
  random: Random,
  { service, oracle, l1 }: FollowerWorld,
): StreamFollower {
  const held = createHeld();
  const log: StreamMessage[] = [];
  const problems: string[] = [];
  const stop = new AbortController();
  const isLines = kind.isLines === true;
  let cursor: string | null = null;
  const take = (message: StreamMessage): void => {
    apply(held, message, l1());
    log.push(message);
    ({ cursor } = message);
    if (message.type !== 'final') return;
    const { height } = message.data;
    if (JSON.stringify(heldLines(held, height)) !== JSON.stringify(oracle.lines(kind, height)))
      problems.push(`final ${height} differs`);
  };
  const connect = async (): Promise<void> => {
    const cut = new AbortController();
    const signal = AbortSignal.any([cut.signal, stop.signal]);
    const headers: Record<string, string> = { 'api-key': service.demo.api_key };
    if (!isLines) headers['accept'] = 'text/event-stream';
    if (!isLines && cursor !== null) headers['last-event-id'] = cursor;
    const from = isLines ? (cursor ?? '0') : '0';
    const limit = isLines ? `&wait=1&limit=${1 + random.below(300)}` : '';
    const url = `${service.baseUrl}/api/stream/transfers/?${kind.query}${limit}&from=${encodeURIComponent(from)}`;
    const response = await fetch(url, { headers, signal });
    if (response.status === 503) throw new Error('503');
    if (response.status !== 200)
      throw new StreamViolation(`status ${response.status}: ${await response.text()}`);
    let left = random.below(3) === 0 ? random.below(50) : 200 + random.below(2000);
    for await (const message of (isLines ? readLines : readEvents)(response)) {
      take(message);
      left -= 1;
      if (left > 0) continue;
      cut.abort();
      return;
    }
  };
  const run = async (): Promise<void> => {
    while (!stop.signal.aborted) {
      try {
        await connect();
      } catch (error) {
        // Other errors come from cuts and killed processes.
        const isProblem = [StreamViolation, z.ZodError, SyntaxError].some((type) => error instanceof type);
        if (isProblem) {
          problems.push(String(error));
          return;
        }
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
    }
  };
  const running = run();
  return {
    kind,
    held,
    log,
    problems,
    async close() {
      stop.abort();
      await running;
    },
  };
}

/** Cursors of a log that more than one message has, other than a `final` that was sent once more. */
export function repeatedCursors(log: readonly StreamMessage[]): string[] {
  const seen = new Map<string, string>();
  const repeated: string[] = [];
  for (const message of log) {
    const text = JSON.stringify(message);
    const earlier = seen.get(message.cursor);
    if (earlier === undefined) seen.set(message.cursor, text);
    else if (message.type !== 'final' || earlier !== text) repeated.push(`${text} and ${earlier}`);
  }
  return repeated;
}
