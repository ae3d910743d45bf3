import { expect, test } from 'vitest';

import { exceptionText, fromEngine, statusOf } from '../../../../../infra/embedded/clickhouse/errors.ts';

// Original texts of the engine.
const plain =
  "Code: 60. DB::Exception: Unknown table expression identifier 'nope' in scope SELECT * FROM nope. Maybe you meant system.one?. (UNKNOWN_TABLE)";
const wrapped =
  "Code: 164. DB::Exception: Code: 164. DB::Exception: Cannot modify 'max_threads' setting in readonly mode. (READONLY) (version 26.7.2.1). (READONLY)";

test('parses an exception of the engine', () => {
  const error = fromEngine(new Error(plain));
  expect([error.code, error.type, statusOf(error)]).toEqual([60, 'UNKNOWN_TABLE', 404]);
  expect(exceptionText(error, '26.7.2.1')).toBe(`${plain} (version 26.7.2.1 (embedded))\n`);
});

test('unwraps a nested exception', () => {
  const error = fromEngine(new Error(wrapped));
  expect([error.code, error.type]).toEqual([164, 'READONLY']);
  expect(error.message).toBe("Cannot modify 'max_threads' setting in readonly mode.");
});

test('turns any other error into an exception with code 1002', () => {
  const error = fromEngine(new Error('out of luck'));
  expect([error.code, error.type, error.message, statusOf(error)]).toEqual([
    1002,
    'UNKNOWN_EXCEPTION',
    'out of luck',
    500,
  ]);
});

test('turns a full disk into the exception of the engine, which clients retry', () => {
  const full = Object.assign(new Error('ENOSPC: no space left on device, write'), { code: 'ENOSPC' });
  const error = fromEngine(full);
  expect([error.code, error.type]).toEqual([243, 'NOT_ENOUGH_SPACE']);
});
