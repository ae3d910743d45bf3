import { Readable } from 'node:stream';

import type { Context } from 'koa';

import type { RequestInfo } from './route.ts';

/** Longest time of sending an answer: until then it is held in memory, and its request may keep a place for reads. */
const SENDING_SECONDS = 60;
/**
 * While others wait for the place that a request keeps until its answer is sent, its client must read this many bytes per
 * second, averaged over `WANTED_READING_SECONDS`.
 */
export const WANTED_READING_BYTES = 250_000;
const WANTED_READING_SECONDS = 5;
const STALL_CHECKS = 12;
const PART_BYTES = 65_536;

/** Destroying the response alone leaves it in memory while an earlier one of its connection is being sent. */
const disconnect = ({ req }: Context): void => void req.socket.destroy();

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
    if (stalled >= STALL_CHECKS) disconnect(context);
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
    if (bytes < seconds * WANTED_READING_BYTES) disconnect(context);
    [seconds, bytes] = [0, 0];
  });
}

/** Disconnects a client that reads too slowly, sooner if others wait for the place that its request keeps, if it has one. */
export function limitSending(context: Context, place?: RequestInfo['place']): void {
  const { body } = context;
  whileSending(context, SENDING_SECONDS * 1000, () => disconnect(context));
  if (place === undefined) return;
  // What is sent of a single buffer would count only once all of it is.
  if (Buffer.isBuffer(body) && body.length > WANTED_READING_SECONDS * WANTED_READING_BYTES) {
    context.body = Readable.from(partsOf(body), { objectMode: false, highWaterMark: PART_BYTES });
    context.length = body.length;
  }
  dropIfSlow(context, place);
}

function* partsOf(bytes: Buffer): Generator<Buffer> {
  for (let at = 0; at < bytes.length; at += PART_BYTES) yield bytes.subarray(at, at + PART_BYTES);
}

/** Calls `look` at an interval until the response is closed, which it already is when the client has disconnected. */
function whileSending({ res }: Context, everyMs: number, look: () => void): void {
  if (res.closed) return;
  const timer = setInterval(look, everyMs);
  res.once('close', () => clearInterval(timer));
}
