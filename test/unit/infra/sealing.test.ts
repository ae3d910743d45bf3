import { randomBytes } from 'node:crypto';

import fc from 'fast-check';
import { expect, test } from 'vitest';

import { createSealing } from '../../../infra/sealing.ts';

const [one, other] = [randomBytes(32), randomBytes(32)];

test('what is sealed opens for what it is a secret of, and nothing else', () => {
  const sealing = createSealing(one);
  fc.assert(
    fc.property(fc.string({ unit: 'grapheme' }), fc.string(), fc.string(), (secret, of, another) => {
      const sealed = sealing.seal(secret, of);
      expect(sealing.open(sealed, of)).toBe(secret);
      expect(sealing.seal(secret, of)).not.toBe(sealed);
      if (another !== of) expect(() => sealing.open(sealed, another)).toThrow('has another owner');
    }),
  );
});

test('not a bit of it can be changed, and none left out', () => {
  const sealing = createSealing(one);
  const [version, id, text = ''] = sealing.seal('the key of a wallet', 'key of it').split('.');
  const bytes = Buffer.from(text, 'base64url');
  for (let bit = 0; bit < bytes.length * 8; bit += 1) {
    const changed = Buffer.from(bytes);
    changed[bit >> 3] = (changed[bit >> 3] ?? 0) ^ (1 << (bit & 7));
    const forged = `${version}.${id}.${changed.toString('base64url')}`;
    expect(() => sealing.open(forged, 'key of it')).toThrow('modified');
  }
  for (let length = 0; length < bytes.length; length += 1) {
    const cut = `${version}.${id}.${bytes.subarray(0, length).toString('base64url')}`;
    expect(() => sealing.open(cut, 'key of it')).toThrow('modified');
  }
});

test('a key of before still opens, and seals no more', () => {
  const old = createSealing(one).seal('kept', 'a of b');
  const sealing = createSealing(other, [one]);
  expect(sealing.open(old, 'a of b')).toBe('kept');
  expect([sealing.isCurrent(old), sealing.isCurrent(sealing.seal('kept', 'a of b'))]).toEqual([false, true]);
  expect(createSealing(other).open(sealing.seal('new', 'a of b'), 'a of b')).toBe('new');
  expect(() => createSealing(other).open(old, 'a of b')).toThrow('SECRET_KEYS_PREVIOUS');
});
