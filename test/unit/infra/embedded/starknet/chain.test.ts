import { appendFileSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { describe, expect, test } from 'vitest';

import type { ChainOptions, SimulatedChain } from '../../../../../infra/embedded/starknet/chain.ts';
import { SEQUENCERS } from '../../../../../infra/embedded/starknet/actors.ts';
import { item } from '../../../../../infra/embedded/starknet/hash.ts';
import { chainOptionsOf } from '../../../../../infra/embedded/starknet/node.ts';
import { STRK, tokens } from '../../../../../infra/embedded/starknet/tokens.ts';
import { createScriptedChain, type ScriptedChain } from '../../../../support/starknet/scripted-chain.ts';

const strk = item(tokens, STRK);

function chainOf(options: Partial<ChainOptions> = {}): ScriptedChain {
  return createScriptedChain({
    ...chainOptionsOf({ initialHead: 200, genesisTime: 1_700_000_000 }),
    ...options,
  });
}

const hashes = (chain: SimulatedChain, from: number, to: number) =>
  Array.from({ length: to - from + 1 }, (_, i) => chain.block(from + i).hash);
const txHashes = (chain: SimulatedChain, height: number) => chain.block(height).txs.map(({ hash }) => hash);
const eventsIn = (chain: SimulatedChain, from: number, to: number) => {
  let sum = 0;
  for (let height = from; height <= to; height++)
    for (const tx of chain.block(height).txs) sum += tx.events.length;
  return sum;
};

function expectLinked(chain: SimulatedChain, from: number, to: number) {
  for (let height = Math.max(1, from); height <= to; height++) {
    expect(chain.block(height).parentHash).toBe(chain.block(height - 1).hash);
    expect(chain.block(height).header['timestamp']).toBeGreaterThanOrEqual(
      Number(chain.block(height - 1).header['timestamp']),
    );
  }
}

describe('a simulated chain', () => {
  test('depends on the seed only, not on the order of requests', () => {
    const forward = chainOf();
    const backward = chainOf();
    const heights = [0, 1, 2, 63, 64, 65, 150, 199, 200];
    const seen = heights.map((height) => JSON.stringify(forward.block(height).txs));
    const again = heights.toReversed().map((height) => JSON.stringify(backward.block(height).txs));
    expect(again.toReversed()).toEqual(seen);
    expect(hashes(forward, 0, 200)).toEqual(hashes(backward, 0, 200));
    expect(chainOf({ seed: 'other' }).block(7).hash).not.toBe(forward.block(7).hash);
    expect(JSON.stringify(chainOf({ seed: 'other' }).block(7).txs)).not.toBe(
      JSON.stringify(forward.block(7).txs),
    );
  });

  test('computes a block at height five million without a replay', () => {
    const chain = chainOf({ initialHead: 5_000_000 });
    const began = performance.now();
    expect(chain.block(5_000_000).txs.length).toBeGreaterThan(3);
    // Including the creation of notes and tables; a replay would take many minutes.
    expect(performance.now() - began).toBeLessThan(2000);
  });

  test('a reorg replaces the top blocks only, and links the new ones', () => {
    const chain = chainOf();
    const before = hashes(chain, 0, 200);
    const fork = chain.reorg({ depth: 4, length: 6 });
    expect(fork.from).toBe(197);
    expect(chain.head()).toBe(202);
    expect(hashes(chain, 0, 196)).toEqual(before.slice(0, 197));
    for (let height = 197; height <= 200; height++) expect(chain.block(height).hash).not.toBe(before[height]);
    expectLinked(chain, 190, 202);
  });

  test('a fork may be shorter, and grows above the previous head', () => {
    const chain = chainOf();
    chain.reorg({ depth: 5, length: 2 });
    expect(chain.head()).toBe(197);
    chain.advance(10);
    expectLinked(chain, 190, 207);
  });

  test('a fork includes some transactions again, some of them one block later, and new ones', () => {
    const chain = chainOf();
    const old = new Map<string, number>();
    for (let height = 181; height <= 200; height++)
      for (const hash of txHashes(chain, height)) old.set(hash, height);
    chain.reorg({ depth: 20, share: 0.6 });
    let again = 0;
    let later = 0;
    let fresh = 0;
    for (let height = 181; height <= 200; height++) {
      for (const hash of txHashes(chain, height)) {
        const was = old.get(hash);
        if (was === undefined) fresh++;
        else if (was === height) again++;
        else {
          expect(was).toBe(height - 1);
          later++;
        }
      }
    }
    expect(again).toBeGreaterThan(20);
    expect(later).toBeGreaterThan(5);
    expect(fresh).toBeGreaterThan(20);
  });

  test('a transaction included again is unchanged except for its position', () => {
    const chain = chainOf();
    const old = new Map(chain.block(200).txs.map((tx) => [tx.hash, JSON.stringify(tx)]));
    chain.reorg({ depth: 1, share: 0.9 });
    const same = chain.block(200).txs.filter(({ hash }) => old.has(hash));
    expect(same.length).toBeGreaterThan(3);
    for (const tx of same) expect(JSON.stringify(tx)).toBe(old.get(tx.hash));
  });

  test('share 0 keeps no transaction', () => {
    const chain = chainOf();
    const old = new Set(txHashes(chain, 200));
    chain.reorg({ depth: 1, share: 0 });
    expect(txHashes(chain, 200).filter((hash) => old.has(hash))).toEqual([]);
  });

  test('a fork can have fewer or more events', () => {
    const count = (events: 'fewer' | 'same' | 'more') => {
      const chain = chainOf();
      chain.reorg({ depth: 20, share: 0.2, events });
      return eventsIn(chain, 181, 200);
    };
    const [fewer, same, more] = [count('fewer'), count('same'), count('more')];
    expect(fewer).toBeLessThan(same * 0.7);
    expect(more).toBeGreaterThan(same * 1.3);
  });

  test('returning to a fork restores its hashes and its height', () => {
    const chain = chainOf();
    const a = hashes(chain, 190, 200);
    const b = chain.reorg({ depth: 3, length: 5 });
    const hashesOfB = hashes(chain, 190, 202);
    chain.switchTo(0);
    expect(chain.head()).toBe(200);
    expect(hashes(chain, 190, 200)).toEqual(a);
    chain.advance(4);
    expectLinked(chain, 190, 204);
    chain.switchTo(b.id);
    expect(chain.head()).toBe(202);
    expect(hashes(chain, 190, 202)).toEqual(hashesOfB);
  });

  test('all forks include the same transactions above the replaced blocks', () => {
    const chain = chainOf();
    const fork = chain.reorg({ depth: 3, share: 0 });
    chain.advance(20);
    const onRoot = new Set(chain.block(210, 0).txs.map(({ hash }) => hash));
    const shared = chain.block(210, fork.id).txs.filter(({ hash }) => onRoot.has(hash));
    expect(shared.length).toBeGreaterThan(onRoot.size / 2);
    expect(
      chain
        .block(200, fork.id)
        .txs.filter(({ hash }) => chain.block(200, 0).txs.some((tx) => tx.hash === hash)),
    ).toEqual([]);
  });

  test('balances do not depend on the order of requests', () => {
    const chain = chainOf();
    const fork = chain.reorg({ depth: 10, share: 0.3 });
    const questions = [205, 190, 3, 180, 195, 200, 192].flatMap((height) =>
      [0, fork.id].map((id) => ({ height, id })),
    );
    const ask = (from: SimulatedChain) =>
      questions.map(({ height, id }) => from.balances.balance(id, height, strk, SEQUENCERS, null));
    // Each from a new chain without earlier requests.
    const fresh = questions.map(({ height, id }) => {
      const other = chainOf();
      other.reorg({ depth: 10, share: 0.3 });
      return other.balances.balance(id, height, strk, SEQUENCERS, null);
    });
    expect(ask(chain)).toEqual(fresh);
    expect(new Set(fresh).size).toBeGreaterThan(8);
  });

  test('a reorg may replace an earlier reorg', () => {
    const chain = chainOf();
    chain.reorg({ depth: 2 });
    chain.advance(3);
    const second = chain.reorg({ depth: 8 });
    expect(second.from).toBe(196);
    expectLinked(chain, 150, chain.head());
    expect(chain.tree.governing(second.id, 200)).toBe(second.id);
    expect(chain.tree.governing(second.id, 195)).toBe(0);
  });

  test('L1 follows in steps and prevents reorgs of accepted blocks', () => {
    const chain = chainOf({ l1: { lag: 30, step: 10 } });
    expect(chain.l1()).toBe(170);
    chain.advance(9);
    expect(chain.l1()).toBe(170);
    chain.advance(1);
    expect(chain.l1()).toBe(180);
    expect(() => chain.reorg({ depth: 30 })).not.toThrow();
    expect(() => chain.reorg({ depth: 31 })).toThrow(/accepted on L1/);
    expect(() => chain.switchTo(0)).not.toThrow();
    chain.setL1(200);
    expect(() => chain.switchTo(1)).toThrow(/accepted on L1/);
    chain.reorg({ depth: 20, force: true });
    expect(chain.l1()).toBe(190);
  });

  test('scripted reorgs occur at the given rate, above L1 and within the given depth', () => {
    const chain = chainOf({ reorgs: { every: 40, maxDepth: 5 }, slots: 3 });
    for (let i = 0; i < 1000; i++) chain.tick();
    const forks = chain.tree.list().slice(1);
    expect(forks.length).toBeGreaterThan(15);
    expect(forks.length).toBeLessThan(40);
    expect(new Set(forks.map(({ depth }) => depth))).toEqual(new Set([1, 2, 3, 4, 5]));
    expect(new Set(forks.map(({ events }) => events))).toEqual(new Set(['fewer', 'same', 'more']));
    expectLinked(chain, 150, chain.head());
  });

  test('a lagging node serves a lower head until it is reset', () => {
    const chain = chainOf();
    chain.setHead(150);
    expect([chain.servedHead(), chain.head()]).toEqual([150, 200]);
    chain.setHead(null);
    expect(chain.servedHead()).toBe(200);
  });
});

describe('a stored chain', () => {
  const stateFile = () => join(mkdtempSync(join(tmpdir(), 'sim-')), 'deep', 'chain.json');

  test('resumes head, forks, L1 and the script of reorgs', () => {
    const file = stateFile();
    const straight = chainOf({ reorgs: { every: 20, maxDepth: 5 } });
    let chain = chainOf({ reorgs: { every: 20, maxDepth: 5 }, stateFile: file });
    for (let i = 0; i < 150; i++) {
      straight.tick();
      chain.tick();
      if (i % 10 === 0)
        chain = chainOf({ reorgs: { every: 20, maxDepth: 5 }, stateFile: file, initialHead: 7 });
    }
    expect(chain.head()).toBe(straight.head());
    expect(chain.l1()).toBe(straight.l1());
    expect(chain.tree.list()).toEqual(straight.tree.list());
    expect(hashes(chain, 0, chain.head())).toEqual(hashes(straight, 0, straight.head()));
  });

  test('dates the next block after a pause to the current time, and keeps earlier timestamps', () => {
    const file = stateFile();
    const start = { stateFile: file, genesisTime: 1_700_000_000, initialHead: 10, blockSeconds: 2 };
    const first = chainOf(start);
    const times = [8, 9, 10].map((height) => first.block(height).header['timestamp']);
    const second = chainOf({ ...start, now: () => 1_700_100_000 });
    second.catchUp();
    second.advance(2);
    expect([8, 9, 10].map((height) => second.block(height).header['timestamp'])).toEqual(times);
    expect(second.block(11).header['timestamp']).toBe(1_700_100_000);
    expect(second.block(12).header['timestamp']).toBe(1_700_100_002);
    const third = chainOf({ ...start, now: () => 1_700_100_004 });
    third.catchUp();
    expect(third.block(11)).toEqual(second.block(11));
  });

  test('computes no hash again that was computed, and finds blocks by it', () => {
    const file = stateFile();
    const first = chainOf({ stateFile: file });
    first.reorg({ depth: 3, length: 4 });
    const known = hashes(first, 0, 201);
    // As after a crash in the middle of a write.
    appendFileSync(`${file}.hashes`, '1 202 0xdead');
    const second = chainOf({ stateFile: file });
    expect(second.source.hashes.find(item(known, 7))).toEqual({ fork: 0, height: 7 });
    expect(second.source.hashes.find(item(known, 199))).toEqual({ fork: 1, height: 199 });
    expect(hashes(second, 0, 201)).toEqual(known);
    expectLinked(second, 190, 201);
    second.advance();
    const { hash } = second.block(202);
    expect(chainOf({ stateFile: file }).block(202).hash).toBe(hash);
  });

  test('dates a block that was pre-confirmed before a pause to the time after it', () => {
    const chain = chainOf({ genesisTime: 1_700_000_000, now: () => 1_700_100_000 });
    expect(chain.block(201).header['timestamp']).toBe(1_700_000_402);
    chain.catchUp();
    chain.advance();
    expect(chain.block(201).header['timestamp']).toBe(1_700_100_000);
  });

  test('is rejected with the file name if it has another seed or is invalid', () => {
    const file = stateFile();
    chainOf({ stateFile: file });
    expect(() => chainOf({ stateFile: file, seed: 'other' })).toThrow(/another chain/);
    expect(JSON.parse(readFileSync(file, 'utf8'))).toMatchObject({ head: 200 });
    writeFileSync(file, '{"head":-1}');
    expect(() => chainOf({ stateFile: file })).toThrow(/not the state of a simulated chain/);
  });
});
