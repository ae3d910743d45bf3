import { describe, expect, test } from 'vitest';

import { MAX_OF_OTHERS, MAX_OF_ROOT, counterpartiesOf, graphOf } from '../../../console/src/graph.ts';
import type { Counterparty } from '../../../console/src/graph.ts';

const moved = (from_address: string, to_address: string, value: string, is_fee = false) => ({
  from_address,
  to_address,
  value,
  is_fee,
});
const party = (address: string, amount = 1n): Counterparty => ({
  address,
  transfers: 1,
  sent: amount,
  received: 0n,
});

describe('counterparties', () => {
  test('are summed exactly, the largest first, without fees and the account itself', () => {
    const large = (1n << 255n).toString();
    const rows = [
      moved('me', 'a', '5'),
      moved('a', 'me', '7'),
      moved('me', 'b', large),
      moved('me', 'b', large),
      moved('c', 'me', '13'),
      moved('me', 'me', '100'),
      moved('me', 'sequencer', '100', true),
    ];
    expect(counterpartiesOf('me', rows)).toEqual([
      { address: 'b', transfers: 2, sent: 1n << 256n, received: 0n },
      { address: 'c', transfers: 1, sent: 0n, received: 13n },
      { address: 'a', transfers: 2, sent: 5n, received: 7n },
    ]);
  });

  test('of one amount are sorted by their transfers, then by address', () => {
    const rows = [moved('me', 'x', '2'), moved('me', 'w', '2'), moved('z', 'me', '1'), moved('me', 'z', '1')];
    expect(counterpartiesOf('me', rows).map(({ address }) => address)).toEqual(['z', 'w', 'x']);
  });
});

describe('a graph', () => {
  test('shows an account once, and a pair by one edge', () => {
    const known = new Map([
      ['me', [party('a', 8n), party('b', 2n)]],
      ['a', [party('b', 4n), party('me', 8n), party('c', 1n)]],
    ]);
    const { nodes, edges } = graphOf('me', known);
    expect(nodes.map(({ address }) => address).toSorted()).toEqual(['a', 'b', 'c', 'me']);
    expect(edges.map(({ of, address, share }) => [of, address, share])).toEqual([
      ['me', 'a', 1],
      ['me', 'b', 0.25],
      ['a', 'b', 0.5],
      ['a', 'c', 0.125],
    ]);
  });

  test('shows the largest of each account only', () => {
    const many = (name: string) => Array.from({ length: 50 }, (_, i) => party(`${name}${i}`));
    const { nodes } = graphOf(
      'me',
      new Map([
        ['me', many('a')],
        ['a3', many('b')],
      ]),
    );
    expect(nodes).toHaveLength(1 + MAX_OF_ROOT + MAX_OF_OTHERS);
    expect(nodes.some(({ address }) => address === `a${MAX_OF_ROOT}`)).toBe(false);
  });

  test('places no two accounts together, and all within its box', () => {
    const many = (name: string, count: number) =>
      Array.from({ length: count }, (_, i) => party(`${name}${i}`));
    const known = new Map([
      ['me', many('a', 20)],
      ['a0', many('b', 10)],
      ['a1', many('c', 10)],
      ['b3', many('d', 10)],
    ]);
    const { nodes, box } = graphOf('me', known);
    const [root] = nodes;
    expect([root?.x, root?.y]).toEqual([0, 0]);
    for (const [i, one] of nodes.entries()) {
      expect(one.x).toBeGreaterThan(box.left);
      expect(one.x).toBeLessThan(box.left + box.width);
      expect(one.y).toBeGreaterThan(box.top);
      expect(one.y).toBeLessThan(box.top + box.height);
      for (const other of nodes.slice(i + 1))
        expect(Math.hypot(one.x - other.x, one.y - other.y)).toBeGreaterThan(12);
    }
  });

  test('drops what nothing leads to any more', () => {
    const { nodes } = graphOf(
      'me',
      new Map([
        ['me', [party('a')]],
        ['b', [party('c')]],
      ]),
    );
    expect(nodes.map(({ address }) => address)).toEqual(['me', 'a']);
  });
});
