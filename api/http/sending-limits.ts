import type { Context } from 'koa';

import type { RequestInfo } from './route.ts';

/** Limits of sending an answer: until then it is held in memory, and its request may keep a place for reads. */
const SENDING_SECONDS = 60;
const WANTED_SENDING_SECONDS = 5;
/**
 * While other requests wait for the place of a streamed answer, its client must read this many bytes per second, averaged over
 * `WANTED_READING_SECONDS`.
 */
export const WANTED_READING_BYTES = 250_000;
const WANTED_READING_SECONDS = 5;
const STALL_CHECKS = 12;

/**
 * Disconnects a client that takes nothing of what waits for it. The kernel buffers up to some MB, and takes more only when
 * much of that is gone: a client that takes less than some 20 kB/s may look as if it took nothing.
 */
export function dropIfStalled(context: Context, stallMs: number): void {
  const { res } = context;
  let [taken, stalled] = [-1, 0];
  whileSending(context, stallMs / STALL_CHECKS, () => {
    const waiting = res.writableLength;
    const now = (res.socket?.bytesWritten ?? 0) - waiting;
    stalled = waiting > 0 && now === taken ? stalled + 1 : 0;
    taken = now;
    if (stalled >= STALL_CHECKS) res.destroy();
  });
}

/** Disconnects a client that takes little of what waits for it, while others wait for the place that its request keeps. */
export function dropIfSlow(context: Context, place: RequestInfo['place']): void {
  const { res } = context;
  let [before, seconds, bytes] = [0, 0, 0];
  whileSending(context, 1000, () => {
    const waiting = res.writableLength;
    const taken = (res.socket?.bytesWritten ?? 0) - waiting;
    [seconds, bytes] = waiting > 0 && place.isWanted() ? [seconds + 1, bytes + taken - before] : [0, 0];
    before = taken;
    if (seconds < WANTED_READING_SECONDS) return;
    if (bytes < seconds * WANTED_READING_BYTES) res.destroy();
    [seconds, bytes] = [0, 0];
  });
}

/** Disconnects a client that reads too slowly, sooner if others wait for the place that its request keeps, if it has one. */
export function limitSending(context: Context, place?: RequestInfo['place']): void {
  let seconds = 0;
  whileSending(context, 1000, () => {
    seconds += 1;
    if (seconds >= (place?.isWanted() === true ? WANTED_SENDING_SECONDS : SENDING_SECONDS))
      context.res.destroy();
  });
}

/** Calls `look` at an interval until the response is closed, which it already is when the client has disconnected. */
function whileSending({ res }: Context, everyMs: number, look: () => void): void {
  if (res.closed) return;
  const timer = setInterval(look, everyMs);
  res.once('close', () => clearInterval(timer));
}
