import { expect, test } from 'vitest';

import { postgresProjections } from '../../../projections/index.ts';

/** The first version of each read model whose rows are in a snapshot that may exist. */
const FIRST_SNAPSHOTTED: Readonly<Record<string, number>> = {
  accounts: 2,
  catalogue: 1,
  sync: 1,
  webhooks: 2,
};

test('a read model of commands can be built from a snapshot of each earlier version', () => {
  const snapshotted = postgresProjections.filter(({ isSnapshotted }) => isSnapshotted === true);
  expect(snapshotted.map(({ name }) => name).toSorted()).toEqual(Object.keys(FIRST_SNAPSHOTTED));
  for (const { name, version, fromSnapshot } of snapshotted) {
    const first = FIRST_SNAPSHOTTED[name] ?? 1;
    const earlier = Array.from({ length: version - first }, (_, index) => String(first + index));
    expect([name, Object.keys(fromSnapshot ?? {})]).toEqual([name, earlier]);
  }
});
