import fc from 'fast-check';
import { expect, test } from 'vitest';

import { decideSync } from '../../../../projections/sync/decider.ts';
import type { StoredBlob } from '../../../../projections/sync/decider.ts';
import type { CommandOf } from '../../../../schemas/messages/commands.ts';

const put = (id: string, body: Partial<CommandOf<'sync.put'>['body']>): CommandOf<'sync.put'> => ({
  v: 1,
  id,
  type: 'sync.put',
  issued_at: 5,
  actor: 'signature',
  request_hash: null,
  body: { lookup_hash: 'ab', version: 1, blob: 'b', verified_with: null, auth_key: 'sealed', ...body },
});

test('accepts a first PUT once, with its key', () => {
  const { outcome, changes } = decideSync(null, put('c1', { version: 3 }));
  expect(outcome).toEqual({ accepted: true, result: { version: 3 } });
  expect(changes).toMatchObject([
    { version: 3, blob: 'b', lastModified: 5, key: { sealed: 'sealed', command: 'c1' } },
  ]);
  const stored = { version: 3, key_command: 'c1' };
  expect(decideSync(stored, put('c2', { version: 9 })).outcome).toEqual({
    accepted: false,
    result: { code: 'CONFLICT', detail: 'The signature was verified with another public key.' },
  });
  // The same key sealed anew, under another SECRET_KEY.
  const again = decideSync(stored, put('c2', { version: 9, verified_with: 'c1', auth_key: 'anew' }));
  expect(again.changes).toMatchObject([{ version: 9, key: { sealed: 'anew', command: 'c1' } }]);
  // Checked with a key that is there no more, or never was.
  expect(decideSync(null, put('c2', { verified_with: 'c1', auth_key: null })).changes).toEqual([]);
  expect(decideSync(stored, put('c2', { version: 9, verified_with: 'c0', auth_key: null })).changes).toEqual(
    [],
  );
});

test('only increases versions, whatever is put', () => {
  const versions = fc.array(fc.integer({ min: 1, max: 20 }), { maxLength: 30 });
  fc.assert(
    fc.property(versions, (asked) => {
      let stored: StoredBlob | null = null;
      let highest = 0;
      for (const [i, version] of asked.entries()) {
        const known: StoredBlob | null = stored;
        const body = known === null ? {} : { verified_with: 'c0', auth_key: null };
        const { outcome, changes } = decideSync(known, put(`c${i}`, { version, ...body }));
        expect(outcome.accepted).toBe(version > highest);
        if (!outcome.accepted) expect(outcome.result['server_version']).toBe(highest);
        if (changes.length > 0) stored = { version, key_command: 'c0' };
        highest = Math.max(highest, version);
      }
    }),
  );
});
