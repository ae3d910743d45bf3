import { describe, expect, test } from 'vitest';

import { padded } from '../../../../support/starknet/counts.ts';
import { interfaceIds, selectors } from '../../../../../infra/embedded/starknet/selectors.ts';
import { tokens, type Token } from '../../../../../infra/embedded/starknet/tokens.ts';
import { blockAt, jsonOf, post, rpc, withNode } from '../../../../support/starknet/client.ts';

const STRK = '0x4718f5a0fc34cc1af16a1cdee98ffb20c31f5cd61d6ab07201858f4287c938d';
const tokenOf = (key: string): Token => {
  const found = tokens.find((token) => token.key === key);
  if (found === undefined) throw new Error(key);
  return found;
};
const call = (
  url: string,
  address: string,
  selector: string,
  calldata: string[] = [],
  block: unknown = 'latest',
) =>
  rpc(url, 'starknet_call', [{ contract_address: address, entry_point_selector: selector, calldata }, block]);

describe('blocks', () => {
  test('are found by number, hash and tag, with status and finality', async () => {
    await withNode({ l1: { lag: 30, step: 10 } }, async ({ url }) => {
      const head = await blockAt(url, 'latest');
      expect([head.block_number, head.status]).toEqual([50, 'ACCEPTED_ON_L2']);
      expect(await blockAt(url, { block_hash: head.block_hash })).toEqual(head);
      expect(await blockAt(url, { block_number: 50 })).toEqual(head);
      const accepted = await blockAt(url, 'l1_accepted');
      expect([accepted.block_number, accepted.status]).toEqual([20, 'ACCEPTED_ON_L1']);
      expect(new Set(accepted.transactions.map(({ receipt }) => receipt.finality_status))).toEqual(
        new Set(['ACCEPTED_ON_L1']),
      );
      expect((await rpc(url, 'starknet_blockNumber')).result).toBe(50);
      expect((await rpc(url, 'starknet_blockHashAndNumber')).result).toEqual({
        block_hash: head.block_hash,
        block_number: 50,
      });
      const hashes = (await rpc(url, 'starknet_getBlockWithTxHashes', { block_id: 'latest' })).result;
      expect(hashes.transactions).toEqual(head.transactions.map(({ receipt }) => receipt.transaction_hash));
      const withTxs = (await rpc(url, 'starknet_getBlockWithTxs', { block_id: 'latest' })).result;
      expect(withTxs.transactions).toEqual(
        head.transactions.map(({ transaction, receipt }) => ({
          transaction_hash: receipt.transaction_hash,
          ...transaction,
        })),
      );
    });
  });

  test('the pre-confirmed block has no hash, parent and root, and becomes the next block', async () => {
    await withNode({}, async ({ url, chain }) => {
      const next = (await rpc(url, 'starknet_getBlockWithReceipts', ['pre_confirmed'])).result;
      expect(Object.keys(next)).not.toEqual(expect.arrayContaining(['block_hash']));
      for (const field of ['parent_hash', 'new_root', 'event_count']) expect(next).not.toHaveProperty(field);
      expect([next.block_number, next.status]).toEqual([51, 'PRE_CONFIRMED']);
      chain?.advance();
      const made = await blockAt(url, 'latest');
      expect(made.transactions.map(({ transaction }) => transaction)).toEqual(
        next.transactions.map(({ transaction }: { transaction: unknown }) => transaction),
      );
    });
  });

  test('an orphaned block is not found by its hash, its successor is', async () => {
    await withNode({}, async ({ url, chain }) => {
      const old = await blockAt(url, 'latest');
      chain?.reorg({ depth: 2 });
      expect(
        (await rpc(url, 'starknet_getBlockWithReceipts', [{ block_hash: old.block_hash }])).error?.code,
      ).toBe(24);
      const now = await blockAt(url, { block_number: 50 });
      expect(now.block_hash).not.toBe(old.block_hash);
      chain?.switchTo(0);
      expect(await blockAt(url, { block_hash: old.block_hash })).toEqual(old);
    });
  });

  test('receipts are found by hash, those of dropped transactions are not', async () => {
    await withNode({}, async ({ url, chain }) => {
      const head = await blockAt(url, 'latest');
      const wanted = head.transactions[1]?.receipt;
      const hash = wanted?.transaction_hash;
      const found = (await rpc(url, 'starknet_getTransactionReceipt', [hash])).result;
      expect(found).toEqual({ ...wanted, block_hash: head.block_hash, block_number: 50 });
      chain?.reorg({ depth: 1, share: 0 });
      expect((await rpc(url, 'starknet_getTransactionReceipt', { transaction_hash: hash })).error?.code).toBe(
        29,
      );
    });
  });

  test.each([
    ['0.8', ['event_count', 'transaction_count', 'event_commitment'], 'l1_accepted', 'pending'],
    ['0.9', ['event_count', 'transaction_count', 'event_commitment'], 'pending', 'pre_confirmed'],
    ['0.10', [], 'pending', 'pre_confirmed'],
  ] as const)(
    'spec %s leaves out %s and does not know the tag %s',
    async (specVersion, absent, bad, good) => {
      await withNode({ specVersion }, async ({ url }) => {
        expect((await rpc(url, 'starknet_specVersion')).result.startsWith(specVersion)).toBe(true);
        const head = await blockAt(url, 'latest');
        for (const field of absent) expect(head).not.toHaveProperty(field);
        if (absent.length === 0) expect(head.event_count).toBeGreaterThan(0);
        expect((await rpc(url, 'starknet_getBlockWithReceipts', [bad])).error?.code).toBe(-32602);
        const unfinished = (await rpc(url, 'starknet_getBlockWithReceipts', [good])).result;
        expect('parent_hash' in unfinished).toBe(specVersion === '0.8');
        expect('block_number' in unfinished).toBe(specVersion !== '0.8');
      });
    },
  );
});

describe('errors', () => {
  test.each([
    ['starknet_getBlockWithReceipts', [{ block_number: 51 }], 24],
    ['starknet_getBlockWithReceipts', [{ block_hash: '0xdead' }], 24],
    ['starknet_getBlockWithReceipts', ['newest'], -32602],
    ['starknet_getBlockWithReceipts', [], -32602],
    ['starknet_nothing', [], -32601],
    ['starknet_getClassHashAt', ['latest', '0xdead'], 20],
    ['starknet_getClassAt', { block_id: 'latest', contract_address: '0xdead' }, 20],
    ['starknet_getClass', ['latest', '0xdead'], 28],
    [
      'starknet_call',
      [{ contract_address: '0xdead', entry_point_selector: '0x1', calldata: [] }, 'latest'],
      20,
    ],
    ['starknet_call', [{ contract_address: STRK, entry_point_selector: '0x1', calldata: [] }, 'latest'], 21],
    [
      'starknet_call',
      [{ contract_address: STRK, entry_point_selector: selectors.name }, { block_number: 99 }],
      24,
    ],
    ['starknet_getEvents', [{ chunk_size: 1025 }], 31],
    ['starknet_getEvents', [{ chunk_size: 10, continuation_token: 'x' }], 33],
    ['starknet_getEvents', [{ chunk_size: 10, keys: Array.from({ length: 17 }, () => ['0x1']) }], 34],
    ['starknet_getEvents', [{ chunk_size: 0 }], -32602],
  ])('%s %j answers %i', async (method, params, code) => {
    await withNode({}, async ({ url }) => {
      expect((await rpc(url, method, params)).error?.code).toBe(code);
    });
  });

  test('rejects invalid JSON, an invalid call and an empty batch', async () => {
    await withNode({}, async ({ url }) => {
      const answers = await Promise.all(['{', '3', '[]'].map((text) => jsonOf(post(url, text))));
      expect(answers.map(({ error }) => error.code)).toEqual([-32700, -32600, -32600]);
    });
  });

  test('answers a batch in one response, with the id of each call', async () => {
    await withNode({}, async ({ url }) => {
      const response = await post(`${url}/rpc/v0_10`, [
        { jsonrpc: '2.0', id: 'a', method: 'starknet_blockNumber' },
        { jsonrpc: '2.0', id: 2, method: 'starknet_nothing' },
        { jsonrpc: '2.0', id: 3, method: 'starknet_chainId', params: {} },
      ]);
      expect(await response.json()).toMatchObject([
        { id: 'a', result: 50 },
        { id: 2, error: { code: -32601 } },
        { id: 3, result: '0x534e5f53494d' },
      ]);
    });
  });
});

describe('getEvents', () => {
  async function all(url: string, filter: Record<string, unknown>) {
    const pages: Record<string, unknown>[][] = [];
    for (let token: string | undefined; ;) {
      const page = (
        await rpc(url, 'starknet_getEvents', [{ ...filter, ...(token && { continuation_token: token }) }])
      ).result;
      pages.push(page.events);
      token = page.continuation_token;
      if (token === undefined) return pages;
    }
  }

  test('pages contain exactly the events of the blocks, in order, with their indexes', async () => {
    await withNode({}, async ({ url, ledger }) => {
      const expected = Array.from({ length: 21 }, (_, i) => ledger.at(30 + i)).flatMap((block) =>
        (block?.txs ?? []).flatMap((tx, transaction_index) =>
          tx.events.map((event, event_index) => ({
            ...event,
            block_hash: block?.hash,
            block_number: block?.height,
            transaction_hash: tx.hash,
            transaction_index,
            event_index,
          })),
        ),
      );
      const range = { from_block: { block_number: 30 }, to_block: { block_number: 50 } };
      for (const chunk_size of [1, 7, 1000]) {
        const pages = await all(url, { ...range, chunk_size });
        expect(pages.flat()).toEqual(expected);
        expect(pages.every((page) => page.length <= chunk_size)).toBe(true);
      }
      const keys = [[selectors.Transfer], [], []];
      const byKey = (await all(url, { ...range, chunk_size: 100, keys, address: STRK })).flat();
      const wanted = expected.filter(
        ({ keys: [first], from_address }) => first === selectors.Transfer && from_address === STRK,
      );
      expect(byKey).toEqual(wanted);
      const both = { ...range, chunk_size: 100, keys, address: [STRK, tokenOf('usdc').hex] };
      expect((await all(url, both)).flat().length).toBeGreaterThan(wanted.length);
    });
  });

  test('an empty page has a token if blocks are left to scan', async () => {
    await withNode({ eventScan: 10 }, async ({ url }) => {
      const pages = await all(url, { from_block: { block_number: 1 }, chunk_size: 10, address: '0x1' });
      expect(pages).toEqual([[], [], [], [], []]);
    });
  });

  test('spec 0.9 has no event indexes', async () => {
    await withNode({ specVersion: '0.9' }, async ({ url }) => {
      const page = (
        await rpc(url, 'starknet_getEvents', [{ from_block: { block_number: 9 }, chunk_size: 3 }])
      ).result;
      expect(page.events).toHaveLength(3);
      for (const event of page.events) expect(event).not.toHaveProperty('event_index');
    });
  });
});

describe('contracts', () => {
  const text = (felts: string[]) => {
    if (felts.length === 1) return Buffer.from(BigInt(felts[0] ?? 0).toString(16), 'hex');
    const words = felts.slice(1, 1 + Number(felts[0])).map((felt) => felt.slice(2).padStart(62, '0'));
    const length = Number(felts.at(-1)) * 2;
    const rest = (felts.at(-2) ?? '0x').slice(2).padStart(length, '0');
    return Buffer.from(words.join('') + (length === 0 ? '' : rest), 'hex');
  };

  test.each([
    ['strk', 'Starknet Token', 1],
    ['keyed', 'All Keyed', 3],
    ['component', 'A Component Token Whose Name Does Not Fit Into One Felt, Nor Into Two: 🚀', 5],
    ['hostile', `<script>alert("x")</script>'; DROP TABLE tokens; --🦊\u202egnp.exe`, 5],
  ])('%s is named %s in %i felts', async (key, name, felts) => {
    await withNode({}, async ({ url }) => {
      const { result } = await call(url, tokenOf(key).hex, selectors.name);
      expect(result).toHaveLength(felts);
      expect(text(result).toString()).toBe(name);
    });
  });

  test('a name that reverts is a contract error with its reason', async () => {
    await withNode({}, async ({ url }) => {
      const { error } = await call(url, tokenOf('nameless').hex, selectors.name);
      expect(error?.code).toBe(40);
      expect(JSON.stringify(error?.data?.revert_error)).toContain('Name not set');
      expect((await call(url, tokenOf('nameless').hex, selectors.decimals)).result).toEqual(['0x12']);
    });
  });

  test('balances at a block are the sums of the transfers up to it', async () => {
    await withNode({}, async ({ url, ledger }) => {
      const sums = new Map<string, bigint>();
      for (let height = 0; height <= 40; height++) {
        for (const { token, from, to, amount } of ledger.at(height)?.transfers ?? []) {
          for (const [account, delta] of [[from, -amount] as const, [to, amount] as const]) {
            const key = `${padded(token)} ${padded(account)}`;
            sums.set(key, (sums.get(key) ?? 0n) + delta);
          }
        }
      }
      const usdc = tokenOf('usdc');
      const wanted = [...sums].filter(
        ([key]) => key.startsWith(padded(usdc.address)) && !key.endsWith(padded(0n)),
      );
      expect(wanted.length).toBeGreaterThan(200);
      const hash = ledger.at(40)?.hash;
      for (const [key, sum] of wanted.slice(0, 30)) {
        const account = key.split(' ')[1] ?? '';
        for (const block of [{ block_number: 40 }, { block_hash: hash }]) {
          const { result } = await call(url, usdc.hex, selectors.balance_of, [account], block);
          expect(BigInt(result[0]) + (BigInt(result[1]) << 128n)).toBe(sum);
        }
      }
      expect((await call(url, usdc.hex, selectors.balanceOf, ['0x123456'])).result).toEqual(['0x0', '0x0']);
    });
  });

  test('a proxy answers SRC-5 for its standard, and its ABI does not reveal it', async () => {
    await withNode({}, async ({ url }) => {
      const { hex } = tokenOf('proxied-nft');
      const ask = async (id: bigint) =>
        (await call(url, hex, selectors.supports_interface, [`0x${id.toString(16)}`])).result;
      expect(await ask(interfaceIds.erc721)).toEqual(['0x1']);
      expect(await ask(interfaceIds.erc1155)).toEqual(['0x0']);
      const { abi } = (await rpc(url, 'starknet_getClassAt', ['latest', hex])).result;
      expect(abi.map(({ name }: { name: string }) => name)).toEqual(['constructor', '__default__']);
    });
  });

  test('incomplete contracts answer decimals only, or nothing', async () => {
    await withNode({}, async ({ url }) => {
      const outcomes: Record<string, unknown[]> = {};
      for (const key of ['decimals-only', 'untold']) {
        const names = [
          'decimals',
          'name',
          'balance_of',
          'balanceOf',
          'supports_interface',
          'supportsInterface',
        ] as const;
        const answers = await Promise.all(
          names.map((name) => call(url, tokenOf(key).hex, selectors[name], ['0x1'])),
        );
        outcomes[key] = answers.map(({ result, error }) => result ?? error?.code);
      }
      expect(outcomes).toEqual({
        'decimals-only': [['0x9'], 21, 21, 21, 21, 21],
        untold: [21, 21, 21, 21, 21, 21],
      });
    });
  });

  test('the ABI of every token matches its standard, and classes are found by hash', async () => {
    await withNode({}, async ({ url }) => {
      for (const token of tokens.filter(({ form }) => form !== 'proxy')) {
        const found = (await rpc(url, 'starknet_getClassAt', ['latest', token.hex])).result;
        const abi = typeof found.abi === 'string' ? JSON.parse(found.abi) : found.abi;
        expect('sierra_program' in found).toBe(token.form !== 'cairo0');
        const flat = abi.flatMap((one: { items?: { name: string }[]; name: string }) => one.items ?? [one]);
        const names = new Set(flat.map(({ name }: { name: string }) => name));
        const has = (...some: string[]) => some.some((name) => names.has(name));
        const declared = has('owner_of', 'ownerOf')
          ? 'erc721'
          : has('safe_batch_transfer_from', 'safeBatchTransferFrom')
            ? 'erc1155'
            : has('transfer') && has('balance_of', 'balanceOf')
              ? 'erc20'
              : 'unknown';
        expect([token.key, declared]).toEqual([token.key, token.standard]);
        const hash = (await rpc(url, 'starknet_getClassHashAt', ['latest', token.hex])).result;
        expect((await rpc(url, 'starknet_getClass', ['latest', hash])).result).toEqual(found);
      }
    });
  });

  test('an upgrade changes the class and the layout of events', async () => {
    await withNode({ initialHead: 80 }, async ({ url }) => {
      const at = async (height: number) =>
        (await rpc(url, 'starknet_getClassHashAt', [{ block_number: height }, STRK])).result;
      expect(await at(63)).not.toBe(await at(64));
      expect(await at(0)).toBe(await at(63));
      const shapes = async (height: number) => {
        const { transactions } = await blockAt(url, { block_number: height });
        const events = transactions.flatMap(({ receipt }) => receipt.events);
        const strk = events.filter(
          ({ from_address, keys }) => from_address === STRK && keys[0] === selectors.Transfer,
        );
        return new Set(strk.map(({ keys, data }) => `${keys.length}/${data.length}`));
      };
      expect(await shapes(63)).toEqual(new Set(['1/4']));
      expect(await shapes(64)).toEqual(new Set(['3/2']));
    });
  });

  test('owners, token URIs and 1155 balances follow the transfers', async () => {
    await withNode({ initialHead: 400 }, async ({ url, ledger }) => {
      const owners = new Map<bigint, bigint>();
      const held = new Map<string, bigint>();
      const [foxes, items] = [tokenOf('foxes'), tokenOf('items')];
      for (let height = 0; height <= 400; height++) {
        for (const { token, tokenId, from, to, amount } of ledger.at(height)?.transfers ?? []) {
          if (token === foxes.address && tokenId !== null) owners.set(tokenId, to);
          if (token !== items.address) continue;
          held.set(`${to} ${tokenId}`, (held.get(`${to} ${tokenId}`) ?? 0n) + amount);
          held.set(`${from} ${tokenId}`, (held.get(`${from} ${tokenId}`) ?? 0n) - amount);
        }
      }
      const u256 = (value: bigint) => [
        `0x${(value & ((1n << 128n) - 1n)).toString(16)}`,
        `0x${(value >> 128n).toString(16)}`,
      ];
      for (const [id, owner] of [...owners].slice(0, 40)) {
        const { result, error } = await call(url, foxes.hex, selectors.owner_of, u256(id));
        if (owner === 0n) expect(error?.code).toBe(40);
        else expect(BigInt(result[0])).toBe(owner);
        const uri = await call(url, foxes.hex, selectors.tokenURI, u256(id));
        if (owner !== 0n) expect(text(uri.result).toString()).toMatch(new RegExp(`^ipfs://.*/${id}$`));
      }
      for (const [key, sum] of [...held].filter(([key]) => !key.startsWith('0 ')).slice(0, 40)) {
        const [account = '', id = ''] = key.split(' ');
        const calldata = [`0x${BigInt(account).toString(16)}`, ...u256(BigInt(id))];
        expect((await call(url, items.hex, selectors.balance_of, calldata)).result).toEqual(u256(sum));
      }
    });
  });
});
