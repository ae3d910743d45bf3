import { EventEmitter } from 'node:events';

import type { Context } from 'koa';
import { expect, test } from 'vitest';

import { createBodyTurns } from '../../../../api/http/body.ts';

const settled = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 5));

/** A request with these headers, whose client may leave. */
function requestOf(headers: Readonly<Record<string, string>>): { context: Context; leave(): void } {
  const res = new EventEmitter();
  const length = headers['Content-Length'];
  const context = {
    res,
    request: { length: length === undefined ? undefined : Number(length) },
    get: (name: string) => headers[name] ?? '',
  };
  return { context: context as unknown as Context, leave: () => void res.emit('close') };
}

const large = { 'Content-Length': '65537' };

/** Starts reads of bodies that end when the test says so; `began` lists them in the order of their start. */
function world() {
  const readInTurn = createBodyTurns();
  const began: string[] = [];
  const ends = new Map<string, () => void>();
  const start = (name: string, address: string, headers: Readonly<Record<string, string>>) => {
    const request = requestOf(headers);
    const read = (): Promise<string> => {
      began.push(name);
      return new Promise((resolve) => ends.set(name, () => resolve(name)));
    };
    return { ...request, done: readInTurn(request.context, address, read) };
  };
  return { began, start, end: (name: string) => ends.get(name)?.() };
}

test('large bodies of an address are read one after the other; small ones, and those of others, at once', async () => {
  const { began, start, end } = world();
  const first = start('first', '10.0.0.1', large);
  const second = start('second', '10.0.0.1', large);
  start('small', '10.0.0.1', { 'Content-Length': '65536' });
  start('without a body', '10.0.0.1', {});
  start('of another', '10.0.0.2', large);
  await settled();
  expect(began).toEqual(['first', 'small', 'without a body', 'of another']);
  end('first');
  expect(await first.done).toBe('first');
  await settled();
  expect(began).toContain('second');
  end('second');
  expect(await second.done).toBe('second');
});

test.each([
  ['compressed', { 'Content-Length': '100', 'Content-Encoding': 'gzip' }],
  ['of unknown size', { 'Transfer-Encoding': 'chunked' }],
])('a body that is %s counts as large', async (name, headers) => {
  const { began, start } = world();
  start('first', '10.0.0.1', large);
  start(name, '10.0.0.1', headers);
  await settled();
  expect(began).toEqual(['first']);
});

test('the body of a client that has left is not read', async () => {
  const { began, start, end } = world();
  const first = start('first', '10.0.0.1', large);
  const second = start('second', '10.0.0.1', large);
  const left = expect(second.done).rejects.toThrow();
  second.leave();
  end('first');
  await first.done;
  await left;
  await settled();
  expect(began).toEqual(['first']);
});
