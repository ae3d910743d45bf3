import { beforeEach, describe, expect, it, test } from 'vitest';

import { ApiError } from '../../../client/src/errors.ts';
import { streamTransfers } from '../../../client/src/stream.ts';
import type { StreamMessage, StreamOptions } from '../../../client/src/stream.ts';

/** The `from` of each connection, with the time, and how the next ones are answered. */
const connections: { from: string | null; at: number }[] = [];
let answers: ((signal: AbortSignal) => Response)[] = [];
beforeEach(() => {
  connections.length = 0;
  answers = [];
});

const event = (cursor: string, type: string, data: unknown): string =>
  `id: ${cursor}\nevent: ${type}\ndata: ${JSON.stringify(data)}\n\n`;
const block = (height: number): string => event(`c${height}`, 'block', { height });
const undo = event('u1', 'undo', { last_valid: { height: 1 }, from: 2, to: 2 });
const refused =
  (status: number, headers: Record<string, string> = {}) =>
  () =>
    Response.json({ detail: 'No.', code: 'no' }, { status, headers });

/** Sends these chunks, then ends, or breaks off, or stays open until it is given up. */
const sends =
  (
    chunks: readonly string[],
    last: 'end' | 'cut' | 'silence' = 'end',
    headers: Record<string, string> = {},
  ) =>
  (signal: AbortSignal): Response =>
    new Response(
      new ReadableStream({
        start(controller) {
          for (const chunk of chunks) controller.enqueue(new TextEncoder().encode(chunk));
          if (last === 'end') controller.close();
          signal.addEventListener('abort', () => last === 'silence' && controller.error(signal.reason));
        },
        pull(controller) {
          if (last === 'cut') controller.error(new Error('cut'));
        },
      }),
      { headers },
    );

let sentHeaders = new Headers();

/** The messages up to a block of this height. */
async function follow(
  top: number,
  options: StreamOptions = {},
  own: { baseUrl?: string; apiKey?: string; session?: string } = { apiKey: 'k' },
): Promise<StreamMessage[]> {
  const transport = {
    baseUrl: 'http://service.example',
    apiKey: undefined,
    session: undefined,
    ...own,
    retry: { delayMs: 5, maxDelayMs: 2000 },
    silenceMs: 50,
    fetch: async (input: string | URL | Request, init?: RequestInit) => {
      const request = new Request(input, init);
      connections.push({ from: new URL(request.url).searchParams.get('from'), at: performance.now() });
      sentHeaders = request.headers;
      return (answers.shift() ?? sends([block(top)]))(request.signal);
    },
  };
  const messages: StreamMessage[] = [];
  for await (const message of streamTransfers(transport, options)) {
    messages.push(message);
    if (message.type === 'block' && message.data.height === top) return messages;
  }
  return messages;
}

describe('a stream', () => {
  it.each(['end', 'cut', 'silence'] as const)('goes on after its newest message after: %s', async (last) => {
    answers = [sends([block(1), undo.slice(0, 20)], last), sends([undo.slice(0, 20), undo.slice(20)], last)];
    const cursors = (await follow(3, { from: 1 })).map(({ cursor }) => cursor);
    expect(cursors).toEqual(['c1', 'u1', 'c3']);
    expect(connections.map(({ from }) => from)).toEqual(['1', 'c1', 'u1']);
  });

  it('that is lost before its first message goes on where it began', async () => {
    answers = ['s1', 's2'].map((cursor) => sends([], 'cut', { 'x-stream-cursor': cursor }));
    await follow(3);
    expect(connections.map(({ from }) => from)).toEqual([null, 's1', 's1']);
  });

  it('yields undo with its data', async () => {
    answers = [sends([undo])];
    const [first] = await follow(3);
    expect(first).toMatchObject({ type: 'undo', data: { last_valid: { height: 1 }, from: 2, to: 2 } });
  });

  it.each([429, 503])('that is answered %s connects again after Retry-After', async (status) => {
    answers = [refused(status, { 'retry-after': '1' })];
    await follow(1);
    const [first, second] = connections;
    expect((second?.at ?? 0) - (first?.at ?? 0)).toBeGreaterThan(990);
  });

  it('connects again for as long as the service is unavailable', async () => {
    answers = Array.from({ length: 8 }, () => refused(503, { 'retry-after': '0' }));
    await follow(1);
    expect(connections).toHaveLength(9);
  });

  it.each([429, 503])('connects again after %s with a Retry-After longer than it waits', async (status) => {
    answers = [refused(status, { 'retry-after': '3600' })];
    await follow(1);
    expect(connections).toHaveLength(2);
  });

  it('throws if it is refused', async () => {
    answers = [refused(400)];
    await expect(follow(1)).rejects.toBeInstanceOf(ApiError);
    expect(connections).toHaveLength(1);
  });

  it.each([
    ['base URL', { baseUrl: 'service.example' }],
    ['key', { apiKey: 'tds_…' }],
    ['session', { session: 'a\nb' }],
  ])('throws if no request can be made with its %s', async (_, own) => {
    await expect(follow(1, {}, own)).rejects.toBeInstanceOf(TypeError);
    expect(connections).toHaveLength(0);
  });

  it.each([
    ['transfer', event('t1', 'transfer', { value: 'much', fee: '0' })],
    ['text', 'id: t1\nevent: block\ndata: {\n\n'],
  ])('throws if it is sent a %s that it cannot read', async (_, message) => {
    answers = [sends([message])];
    await expect(follow(1)).rejects.toBeInstanceOf(SyntaxError);
    expect(connections).toHaveLength(1);
  });

  describe('that is ended because its key or session may not be used', () => {
    const limit = sends([event('e', 'end', { reason: 'limit' })]);

    it('throws why the next connection is refused', async () => {
      answers = [limit, refused(401)];
      const error = await follow(1, { from: 1 }).catch((reason: unknown) => reason);
      expect(error).toBeInstanceOf(ApiError);
      expect(error).toMatchObject({ status: 401, code: 'no' });
      expect(connections.map(({ from }) => from)).toEqual(['1', 'e']);
    });

    it('goes on where it was if the next connection is accepted', async () => {
      answers = [limit, sends([block(1), event('e1', 'end', { reason: 'limit' })])];
      const messages = await follow(2);
      expect(messages.map(({ cursor }) => cursor)).toEqual(['c1', 'c2']);
      expect(connections.map(({ from }) => from)).toEqual([null, 'e', 'e1']);
    });

    it('throws if the next connection is ended at once too', async () => {
      answers = [limit, limit];
      await expect(follow(1)).rejects.toMatchObject({ status: 403, code: 'limit' });
      expect(connections).toHaveLength(2);
    });
  });

  it('ends when its signal fires', async () => {
    answers = [sends([block(1)], 'silence')];
    expect(await follow(2, { signal: AbortSignal.timeout(20) })).toHaveLength(1);
    expect(connections).toHaveLength(1);
  });
});

test('a stream is opened with the key, or without one with the session', async () => {
  await follow(1, {}, { apiKey: 'k', session: 's' });
  expect([sentHeaders.get('api-key'), sentHeaders.get('authorization')]).toEqual(['k', null]);
  await follow(1, {}, { session: 's' });
  expect([sentHeaders.get('api-key'), sentHeaders.get('authorization')]).toEqual(['session', 'Bearer s']);
});
