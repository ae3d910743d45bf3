import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { classifyAbi } from '../../../../../pipeline/ingest/contracts/abi.ts';
import { cairo0Erc1155, cairo0Erc20, cairo0Erc721, cairo0Proxy, fn, sierraToken } from './abis.ts';

describe('classifyAbi', () => {
  it.each([
    ['erc20', sierraToken('erc20')],
    ['erc721', sierraToken('erc721')],
    ['erc1155', sierraToken('erc1155')],
    ['erc20', cairo0Erc20],
    ['erc721', cairo0Erc721],
    ['erc1155', cairo0Erc1155],
  ])('recognises an OpenZeppelin %s', (standard, abi) => {
    expect(classifyAbi(abi)).toBe(standard);
  });

  it('recognises functions outside of interfaces, as in Cairo 1.0', () => {
    const abi = [
      { ...fn('balance_of', 'account'), state_mutability: 'view' },
      { ...fn('transfer', 'recipient', 'amount'), state_mutability: 'external' },
      { type: 'event', name: 'Transfer', inputs: [] },
    ];
    expect(classifyAbi(abi)).toBe('erc20');
  });

  it.each([
    ['nothing', []],
    ['a Cairo 0 proxy', cairo0Proxy],
    ['an account', [fn('__execute__', 'calls'), fn('is_valid_signature', 'hash', 'signature')]],
    ['transfer without the event', [fn('transfer', 'to', 'amount'), fn('balance_of', 'owner')]],
    ['the event alone', [{ type: 'event', name: 'a::b::Transfer', kind: 'struct', members: [] }]],
    [
      'several ids behind one transfer (ERC-6909)',
      [
        fn('transfer', 'receiver', 'id', 'amount'),
        fn('balance_of', 'owner', 'id'),
        { type: 'event', name: 'Transfer', kind: 'struct', members: [] },
      ],
    ],
    [
      'owners and decimals at once',
      [...sierraToken('erc721'), fn('transfer', 'to', 'amount'), fn('decimals')],
    ],
    ['two token standards at once', [...sierraToken('erc721'), ...sierraToken('erc1155')]],
  ])('returns null for %s', (_, abi) => {
    expect(classifyAbi(abi)).toBeNull();
  });

  it('recognises an ERC-721 that also has a plain transfer', () => {
    expect(classifyAbi([...cairo0Erc721, fn('transfer', 'to', 'tokenId')])).toBe('erc721');
  });

  it('ignores entries of any other shape', () => {
    fc.assert(
      fc.property(fc.array(fc.jsonValue(), { maxLength: 20 }), (junk) => {
        expect(classifyAbi([...junk, ...cairo0Erc721, ...junk])).toBe('erc721');
      }),
    );
    const recursive: unknown[] = [];
    recursive.push({ type: 'interface', name: 'I', items: recursive });
    expect(classifyAbi(recursive)).toBeNull();
  });
});
