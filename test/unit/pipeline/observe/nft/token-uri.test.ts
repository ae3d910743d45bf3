import fc from 'fast-check';
import { hash } from 'starknet';
import { describe, expect, it } from 'vitest';

import { backoffMs } from '../../../../../pipeline/observe/nft/attempt.ts';
import { MetadataFailure } from '../../../../../pipeline/observe/nft/failure.ts';
import { createHosts } from '../../../../../pipeline/observe/nft/hosts.ts';
import {
  MAX_URI_BYTES,
  SELECTORS,
  readTokenUri,
  revertReason,
} from '../../../../../pipeline/observe/nft/token-uri.ts';
import type { Spelling } from '../../../../../pipeline/observe/nft/token-uri.ts';
import { RpcError } from '../../../../../pipeline/node/errors.ts';
import type { FunctionCall } from '../../../../../pipeline/node/types.ts';
import { toFelt } from '../../../../../schemas/felt.ts';
import type { Felt } from '../../../../../schemas/felt.ts';

const TOKEN = toFelt(0xa47n);
const felts = (...values: (bigint | number)[]): Felt[] => values.map((value) => toFelt(BigInt(value)));
const feltOf = (bytes: Buffer): bigint => BigInt(`0x${bytes.toString('hex') || '0'}`);

/** As a Cairo compiler lays a ByteArray out. */
function byteArray(text: string): Felt[] {
  const bytes = Buffer.from(text);
  const full = Math.floor(bytes.length / 31);
  const words = Array.from({ length: full }, (_, i) => feltOf(bytes.subarray(31 * i, 31 * i + 31)));
  const rest = bytes.subarray(31 * full);
  return felts(full, ...words, feltOf(rest), rest.length);
}
function feltArray(text: string): Felt[] {
  const words =
    Buffer.from(text)
      .toString('latin1')
      .match(/.{1,31}/gs) ?? [];
  return felts(words.length, ...words.map((word) => feltOf(Buffer.from(word, 'latin1'))));
}

const refused = (code: number, reason?: unknown): never => {
  throw new RpcError('starknet_call', code, 'Contract error', { revert_error: reason });
};
async function ask(
  answer: (call: FunctionCall) => Felt[],
  { id = 7n, standard = 'erc721' as const, spellings = new Map<Felt, Spelling>() } = {},
): Promise<string> {
  const node = { call: async (call: FunctionCall) => answer(call) };
  return await readTokenUri(node, { token: TOKEN, id, standard }, spellings);
}

describe('the URI of an NFT', () => {
  it('is asked for by the names that contracts have', () => {
    for (const [name, selector] of Object.entries(SELECTORS))
      expect(selector).toBe(toFelt(BigInt(hash.getSelectorFromName(name))));
  });

  it('is read in every form', async () => {
    const ascii = fc.stringMatching(/^[!-~]{1,200}$/);
    await fc.assert(
      fc.asyncProperty(ascii, async (text) => {
        expect(await ask(() => byteArray(text))).toBe(text);
        expect(await ask(() => feltArray(text))).toBe(text);
        if (text.length <= 31) expect(await ask(() => felts(feltOf(Buffer.from(text))))).toBe(text);
      }),
    );
    const long = `data:,${'x'.repeat(MAX_URI_BYTES - 6)}`;
    expect(await ask(() => byteArray(long))).toBe(long);
  });

  it.each([
    ['a number', felts(0)],
    ['nothing', felts()],
    ['a wrong length', felts(5, 1)],
    ['an empty ByteArray', felts(0, 0, 0)],
    ['more than is kept', byteArray('x'.repeat(MAX_URI_BYTES + 1))],
  ])('is none where the contract answers %s', async (_, answer) => {
    await expect(ask(() => answer)).rejects.toMatchObject({ name: 'MetadataFailure', reason: 'unavailable' });
  });

  it('is asked by the next name and form, and by the right one at once from then on', async () => {
    const asked: string[] = [];
    const spellings = new Map<Felt, Spelling>();
    const only = (selector: Felt, width: number) => (call: FunctionCall) => {
      asked.push(`${call.selector} ${call.calldata.length}`);
      return call.selector === selector && call.calldata.length === width ? felts(0x61) : refused(40, 'x');
    };
    expect(await ask(only(SELECTORS.tokenURI, 1), { spellings })).toBe('a');
    expect(asked).toHaveLength(5);
    asked.length = 0;
    expect(await ask(only(SELECTORS.tokenURI, 1), { spellings })).toBe('a');
    expect(asked).toEqual([`${SELECTORS.tokenURI} 1`]);
    // An id that no felt holds is never sent as one.
    await expect(ask(only(SELECTORS.tokenURI, 1), { spellings, id: 1n << 255n })).rejects.toBeInstanceOf(
      MetadataFailure,
    );
  });

  it("fails with the contract's own reason rather than with that it has no such function", async () => {
    const answer = ({ selector }: FunctionCall): Felt[] =>
      selector === SELECTORS.tokenURI
        ? refused(40, { contract_address: '0x1', error: "0x6e6f ('Not minted')" })
        : refused(21);
    await expect(ask(answer)).rejects.toEqual(new MetadataFailure('reverted', 'Not minted'));
    // A contract whose ids are one felt refuses two of them by their number.
    const narrow = ({ selector, calldata }: FunctionCall): Felt[] => {
      if (selector !== SELECTORS.tokenURI) return refused(21);
      return refused(40, calldata.length === 2 ? 'Input too long for arguments' : 'Not minted');
    };
    await expect(ask(narrow)).rejects.toEqual(new MetadataFailure('reverted', 'Not minted'));
    await expect(ask(() => refused(20))).rejects.toMatchObject({ reason: 'reverted' });
  });

  it('is no failure of the NFT where the node is away', async () => {
    await expect(ask(() => refused(-32603))).rejects.toBeInstanceOf(RpcError);
  });
});

it.each([
  ["0x4e6f ('No')", 'No'],
  [{ contract_address: '0x1', class_hash: '0x2', error: { error: { error: "0x4e6f ('No')" } } }, 'No'],
  ["(0x4e6f74 ('Not'), 0x454e54525950 ('ENTRYPOINT_FAILED'))", 'Not'],
  ['Error in contract (…): invalid id', 'Error in contract (…): invalid id'],
  ["0x0 ('')", "0x0 ('')"],
])('the reason in %j is %s', (error, reason) => {
  expect(revertReason({ revert_error: error })).toBe(reason);
});

it.each([undefined, null, 1, [], {}, { revert_error: 5 }, { revert_error: '' }])('none is in %j', (data) => {
  expect(revertReason(data)).toBeNull();
});

it('the reason is found however deep it lies, and not looked for without end', () => {
  let data: unknown = 'deep';
  for (let i = 0; i < 100_000; i += 1) data = { error: data };
  expect(revertReason(data)).toBeNull();
});

describe('the backoff', () => {
  it('doubles from five minutes to a day, and ends with the tenth failure', () => {
    const backoff = { baseMs: 300_000, mostMs: 86_400_000, attempts: 10 };
    const minutes = Array.from({ length: 10 }, (_, i) => (backoffMs(i + 1, backoff) ?? 0) / 60_000);
    expect(minutes).toEqual([5, 10, 20, 40, 80, 160, 320, 640, 1280, 0]);
    expect(backoffMs(10, backoff)).toBeNull();
    expect(backoffMs(10, { ...backoff, attempts: 20 })).toBe(86_400_000);
  });
});

it('a host has its places and no more', () => {
  const hosts = createHosts((host) => (host === 'ipfs' ? 2 : 1));
  expect([hosts.enter('ipfs'), hosts.enter('ipfs'), hosts.enter('ipfs'), hosts.enter('a')]).toEqual([
    true,
    true,
    false,
    true,
  ]);
  expect(hosts.full()).toEqual(['ipfs', 'a']);
  hosts.leave('ipfs');
  hosts.leave('a');
  expect(hosts.full()).toEqual([]);
  expect(hosts.enter('a')).toBe(true);
});
