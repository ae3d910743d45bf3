import { createHash } from 'node:crypto';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

const TRANSACTIONS = 400;
const EVENTS = 6;
const ROUNDS = 8;

/**
 * A fixed workload of the kind that the service does in JavaScript: JSON, felts in hex, 256-bit integers, hashing; about
 * 0.1 s. Recorded ratios relate to it, so after a change of it they must be recorded again.
 */
export function createReference(): () => void {
  const felt = (index: number): string => `0x${createHash('sha256').update(`felt ${index}`).digest('hex')}`;
  const event = (index: number): object => ({
    from_address: felt(index % 50),
    keys: [felt(1000), felt(index), felt(index + 1)],
    data: [felt(index + 2), '0x0'],
  });
  const text = JSON.stringify(
    Array.from({ length: TRANSACTIONS }, (_, index) => ({
      hash: felt(-index),
      events: Array.from({ length: EVENTS }, (__, n) => event(index * EVENTS + n)),
    })),
  );
  return () => {
    for (let round = 0; round < ROUNDS; round += 1) work(text);
  };
}

function work(text: string): void {
  const counts = new Map<string, bigint>();
  const parsed = JSON.parse(text) as { events: { from_address: string; keys: string[]; data: string[] }[] }[];
  for (const { events } of parsed) {
    for (const { from_address, keys, data } of events) {
      if (!keys.every((key) => /^0x[0-9a-f]{1,64}$/.test(key))) throw new TypeError('not a felt');
      const amount = BigInt(data[0] ?? '0x0') & ((1n << 128n) - 1n);
      counts.set(from_address, (counts.get(from_address) ?? 0n) + amount);
    }
  }
  createHash('sha256')
    .update(JSON.stringify(parsed))
    .update([...counts.values()].join(','))
    .digest();
}

/** CPU milliseconds that this process, with its helper threads, spends on some work. Garbage of earlier work does not count. */
export async function cpuOf(work: () => void | Promise<void>): Promise<number> {
  collectGarbage();
  const before = process.cpuUsage();
  await work();
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 1000;
}

setFlagsFromString('--expose-gc');
const collectGarbage = runInNewContext('gc') as () => void;
