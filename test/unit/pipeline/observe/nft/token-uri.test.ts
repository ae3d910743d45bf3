import fc from 'fast-check';
import { hash } from 'starknet';
import { describe, expect, it } from 'vitest';

import { retryDelayMs } from '../../../../../pipeline/observe/nft/attempt.ts';
import { MetadataFailure } from '../../../../../pipeline/observe/nft/failure.ts';
import { createHostSlots } from '../../../../../pipeline/observe/nft/host-slots.ts';
import {
  MAX_URI_BYTES,
  SELECTORS,
  readTokenUri,
  revertReason,
} from '../../../../../pipeline/observe/nft/token-uri.ts';
import type { CallForm } from '../../../../../pipeline/observe/nft/token-uri.ts';
import { RpcError } from '../../../../../pipeline/node/errors.ts';
import type { FunctionCall } from '../../../../../pipeline/node/types.ts';
import { toFelt } from '../../../../../schemas/felt.ts';
import type { Felt } from '../../../../../schemas/felt.ts';

const TOKEN = toFelt(0xa47n);
const felts = (...values: (bigint | number)[]): Felt[] => values.map((value) => toFelt(BigInt(value)));
const feltOf = (bytes: Buffer): bigint => BigInt(`0x${bytes.toString('hex') || '0'}`);

/** The memory layout of Cairo's ByteArray. */
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
async function readUri(
  answer: (call: FunctionCall) => Felt[],
  { id = 7n, standard = 'erc721' as const, forms = new Map<Felt, CallForm>() } = {},
): Promise<string> {
  const node = { call: async (call: FunctionCall) => answer(call) };
  return await readTokenUri(node, { token: TOKEN, id, standard }, forms);
}

describe('readTokenUri', () => {
  it('uses the selectors of the entry point names', () => {
    for (const [name, selector] of Object.entries(SELECTORS))
      expect(selector).toBe(toFelt(BigInt(hash.getSelectorFromName(name))));
  });

  it('reads every encoding of text', async () => {
    const ascii = fc.stringMatching(/^[!-~]{1,200}$/);
    await fc.assert(
      fc.asyncProperty(ascii, async (text) => {
        expect(await readUri(() => byteArray(text))).toBe(text);
        expect(await readUri(() => feltArray(text))).toBe(text);
        if (text.length <= 31) expect(await readUri(() => felts(feltOf(Buffer.from(text))))).toBe(text);
      }),
    );
    const long = `data:,${'x'.repeat(MAX_URI_BYTES - 6)}`;
    expect(await readUri(() => byteArray(long))).toBe(long);
  });

  it.each([
    ['a number', felts(0)],
    ['nothing', felts()],
    ['a wrong length', felts(5, 1)],
    ['an empty ByteArray', felts(0, 0, 0)],
    ['more than the limit', byteArray('x'.repeat(MAX_URI_BYTES + 1))],
  ])('fails where the contract answers %s', async (_, answer) => {
    await expect(readUri(() => answer)).rejects.toMatchObject({
      name: 'MetadataFailure',
      reason: 'unavailable',
    });
  });

  it('tries the next name and form, and starts with the one that worked', async () => {
    const calls: string[] = [];
    const forms = new Map<Felt, CallForm>();
    const only = (selector: Felt, width: number) => (call: FunctionCall) => {
      calls.push(`${call.selector} ${call.calldata.length}`);
      return call.selector === selector && call.calldata.length === width ? felts(0x61) : refused(40, 'x');
    };
    expect(await readUri(only(SELECTORS.tokenURI, 1), { forms })).toBe('a');
    expect(calls).toHaveLength(5);
    calls.length = 0;
    expect(await readUri(only(SELECTORS.tokenURI, 1), { forms })).toBe('a');
    expect(calls).toEqual([`${SELECTORS.tokenURI} 1`]);
    // An id that does not fit one felt is never sent as one.
    await expect(readUri(only(SELECTORS.tokenURI, 1), { forms, id: 1n << 255n })).rejects.toBeInstanceOf(
      MetadataFailure,
    );
  });

  it("fails with the contract's own reason rather than that of a missing entry point", async () => {
    const answer = ({ selector }: FunctionCall): Felt[] =>
      selector === SELECTORS.tokenURI
        ? refused(40, { contract_address: '0x1', error: "0x6e6f ('Not minted')" })
        : refused(21);
    await expect(readUri(answer)).rejects.toEqual(new MetadataFailure('reverted', 'Not minted'));
    // A contract with one-felt ids refuses two felts for their count.
    const narrow = ({ selector, calldata }: FunctionCall): Felt[] => {
      if (selector !== SELECTORS.tokenURI) return refused(21);
      return refused(40, calldata.length === 2 ? 'Input too long for arguments' : 'Not minted');
    };
    await expect(readUri(narrow)).rejects.toEqual(new MetadataFailure('reverted', 'Not minted'));
    await expect(readUri(() => refused(20))).rejects.toMatchObject({ reason: 'reverted' });
  });

  it('throws the error of the node instead of failing the NFT', async () => {
    await expect(readUri(() => refused(-32603))).rejects.toBeInstanceOf(RpcError);
  });
});

it.each([
  ["0x4e6f ('No')", 'No'],
  [{ contract_address: '0x1', class_hash: '0x2', error: { error: { error: "0x4e6f ('No')" } } }, 'No'],
  ["(0x4e6f74 ('Not'), 0x454e54525950 ('ENTRYPOINT_FAILED'))", 'Not'],
  ['Error in contract (…): invalid id', 'Error in contract (…): invalid id'],
  ["0x0 ('')", "0x0 ('')"],
])('revertReason of %j is %s', (error, reason) => {
  expect(revertReason({ revert_error: error })).toBe(reason);
});

it.each([undefined, null, 1, [], {}, { revert_error: 5 }, { revert_error: '' }])(
  'revertReason finds none in %j',
  (data) => {
    expect(revertReason(data)).toBeNull();
  },
);

it('revertReason stops at its depth limit', () => {
  let data: unknown = 'deep';
  for (let i = 0; i < 100_000; i += 1) data = { error: data };
  expect(revertReason(data)).toBeNull();
});

describe('retryDelayMs', () => {
  it('doubles from five minutes to a day and is null after the tenth failure', () => {
    const schedule = { baseMs: 300_000, maxMs: 86_400_000, attempts: 10 };
    const minutes = Array.from({ length: 10 }, (_, i) => (retryDelayMs(i + 1, schedule) ?? 0) / 60_000);
    expect(minutes).toEqual([5, 10, 20, 40, 80, 160, 320, 640, 1280, 0]);
    expect(retryDelayMs(10, schedule)).toBeNull();
    expect(retryDelayMs(10, { ...schedule, attempts: 20 })).toBe(86_400_000);
  });
});

it('createHostSlots limits the slots of each host', () => {
  const hosts = createHostSlots((host) => (host === 'ipfs' ? 2 : 1));
  expect([hosts.acquire('ipfs'), hosts.acquire('ipfs'), hosts.acquire('ipfs'), hosts.acquire('a')]).toEqual([
    true,
    true,
    false,
    true,
  ]);
  expect(hosts.full()).toEqual(['ipfs', 'a']);
  hosts.release('ipfs');
  hosts.release('a');
  expect(hosts.full()).toEqual([]);
  expect(hosts.acquire('a')).toBe(true);
});
