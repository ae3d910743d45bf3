import { hash } from 'starknet';
import { describe, expect, test } from 'vitest';

import { createIdCodec, idTags } from '../../../../../infra/embedded/starknet/hash.ts';
import { selectors } from '../../../../../infra/embedded/starknet/selectors.ts';

describe('selectors', () => {
  test.each(Object.entries(selectors))('%s is sn_keccak of its name', (name, selector) => {
    expect(selector).toBe(hash.getSelectorFromName(name));
  });
});

describe('ids', () => {
  const codec = createIdCodec('seed');

  test('are decoded to their content, and are felts without leading zeros', () => {
    for (let height = 0; height < 3000; height += 7) {
      const id = codec.encode(idTags.account, height, height * 3, 0xffffffff);
      expect(id).toMatch(/^0x[1-9a-f][0-9a-f]*$/);
      expect(BigInt(id)).toBeLessThan(1n << 251n);
      expect(codec.decode(id)).toEqual({ tag: idTags.account, a: height, b: height * 3, c: 0xffffffff });
    }
  });

  test('of another seed, altered ids and other felts are not decoded', () => {
    const id = codec.encode(idTags.transaction, 5, 6, 7);
    const lastDigit = id.endsWith('0') ? '1' : '0';
    expect(createIdCodec('other').decode(id)).toBeNull();
    expect(codec.decode(id.slice(0, -1) + lastDigit)).toBeNull();
    expect(codec.decode('0x0')).toBeNull();
    expect(codec.decode(`0x7${'f'.repeat(62)}`)).toBeNull();
    expect(codec.decode(`0x000${id.slice(2)}`)).toEqual({ tag: idTags.transaction, a: 5, b: 6, c: 7 });
  });
});
