import { expect, test } from 'vitest';

import type { Kafka } from '../../../../../infra/kafka/client.ts';
import { differenceInBlock } from '../../../../../projections/engine/verify/sample.ts';

const block = { height: 7, hash: '0x7', transfers: 0, tokens: [], partition: 0, offset: 3, seq: 1 };
const deps = {
  clickhouse: { rows: async () => [] },
  served: { table: (name: string) => name },
  clock: { random: () => 0 },
};

test('differenceInBlock stops reading the log when its signal aborts', async () => {
  const kafka: Pick<Kafka, 'readRange'> = {
    async *readRange(...[, , , , signal]) {
      signal?.throwIfAborted();
      yield* [];
    },
  };
  const signal = AbortSignal.abort(new Error('stopping'));
  await expect(differenceInBlock(deps, block, kafka, signal)).rejects.toThrow('stopping');
});
