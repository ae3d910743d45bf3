import PQueue from 'p-queue';
import { z } from 'zod';

import { UNCLASSIFIED } from '../../../infra/health/alarms.ts';
import type { Logger } from '../../../infra/log.ts';
import { createLruCache } from '../../../infra/lru.ts';
import type { Pool } from '../../../infra/postgres/client.ts';
import type { Felt } from '../../../schemas/felt.ts';
import type { ContractFacts } from '../../../schemas/messages/chain-blocks.ts';
import { felt, tokenStandard } from '../../../schemas/messages/common.ts';
import type { TokenStandard } from '../../../schemas/messages/common.ts';
import type { BlockPoint } from '../../node/types.ts';
import type { IngestStore, Standards } from '../ports.ts';
import { createAlarmStore } from '../store/alarms.ts';
import { createStatements } from '../store/sql.ts';
import type { Statements } from '../store/sql.ts';
import { classify } from './classify.ts';
import type { AbiVerdict, Classification, ClassifyingNode } from './classify.ts';

export interface StandardsOptions {
  readonly node: ClassifyingNode;
  readonly pool: Pool;
  readonly log: Logger;
  readonly now?: () => number;
}

/** How long a cached answer is used without reading the table, so the time until a reclassification reaches every process. */
export const STANDARDS_TTL_MS = 5000;
/** About 300 bytes each. */
const CACHED_CONTRACTS = 100_000;
const CACHED_CLASSES = 20_000;
/** Contracts looked up concurrently. */
const CONCURRENCY = 16;

/** Failed look-ups of one contract in a row after which it has an alarm. */
const FAILURES_BEFORE_ALARM = 5;

/** Replaces a stored classification. */
const REPLACE = `standard = excluded.standard, class_hash = excluded.class_hash, basis = excluded.basis,
  block = excluded.block, classified_at = now()`;

const standardRow = z.object({ contract: felt, standard: tokenStandard, class_hash: felt.nullable() });

export function createStandards({ node, pool, log, now = Date.now }: StandardsOptions): Standards {
  const statements = createStatements(pool);
  const ask = createChainLookup(node);
  const cache = createLruCache<Felt, { facts: ContractFacts; readAt: number }>(CACHED_CONTRACTS);
  const lookUps = new Map<Felt, Promise<ContractFacts>>();

  const remember = (contract: Felt, facts: ContractFacts): ContractFacts => {
    cache.set(contract, { facts, readAt: now() });
    return facts;
  };

  const store = async (
    contract: Felt,
    found: Classification,
    at: BlockPoint,
    onConflict: string,
  ): Promise<ContractFacts> =>
    remember(contract, await storeFacts(statements, contract, found, at, onConflict));

  const failing = createFailureAlarms(createAlarmStore(statements), log);

  const lookUp = (contract: Felt, at: BlockPoint, priority: number): Promise<ContractFacts> => {
    const running = lookUps.get(contract);
    if (running !== undefined) return running;
    const started = (async () => {
      const found = await ask(contract, at, priority).catch(async (error: unknown) => {
        await failing.failed(contract, at, error);
        throw error;
      });
      await failing.answered(contract);
      // The first process to store an answer wins; the no-op update makes RETURNING give its row.
      const facts = await store(contract, found, at, 'contract = excluded.contract');
      log.debug({ contract, ...facts, basis: found.basis, block: at.height }, 'contract classified');
      return facts;
    })().finally(() => lookUps.delete(contract));
    lookUps.set(contract, started);
    return started;
  };

  return {
    async resolve(contracts, at, { priority = 0 } = {}) {
      const facts = new Map<Felt, ContractFacts>();
      const resolvedAt = now();
      const distinct = [...new Set(contracts)];
      for (const contract of distinct) {
        const cached = cache.get(contract);
        // Absolute: the clock may be set back.
        if (cached !== undefined && Math.abs(resolvedAt - cached.readAt) < STANDARDS_TTL_MS)
          facts.set(contract, cached.facts);
      }
      const uncached = distinct.filter((contract) => !facts.has(contract));
      for (const [contract, stored] of await readStored(statements, uncached)) {
        facts.set(contract, remember(contract, stored));
      }
      const missing = uncached.filter((contract) => !facts.has(contract));
      const outcomes = await Promise.allSettled(
        missing.map(async (contract) => [contract, await lookUp(contract, at, priority)] as const),
      );
      for (const outcome of outcomes) {
        if (outcome.status === 'rejected') throw outcome.reason;
        facts.set(...outcome.value);
      }
      return facts;
    },

    async reclassify(contract, at) {
      const before = (await readStored(statements, [contract])).get(contract) ?? null;
      const found = await ask(contract, at);
      const after = await store(contract, found, at, REPLACE);
      log.info({ contract, before, after, basis: found.basis }, 'contract reclassified');
      return { before, after };
    },
  };
}

const alarmOf = (contract: Felt): string => UNCLASSIFIED + contract;

/** Raises an alarm that names a contract about which the node gives no answer, and clears it once there is one. */
function createFailureAlarms(store: Pick<IngestStore, 'raiseAlarm' | 'clearAlarms'>, log: Logger) {
  const failures = new Map<Felt, number>();
  return {
    /** Never rejects: the failure itself is reported by the caller. */
    async failed(contract: Felt, at: BlockPoint, error: unknown): Promise<void> {
      const count = (failures.get(contract) ?? 0) + 1;
      failures.set(contract, count);
      if (count < FAILURES_BEFORE_ALARM) return;
      const detail = `The node gives no answer about this contract at height ${at.height} (${String(error)}). Set its standard: tds contracts set ${contract} STANDARD`;
      await store
        .raiseAlarm(alarmOf(contract), detail)
        .catch((cause: unknown) => log.warn({ err: cause, contract }, 'alarm not raised'));
    },
    /** Also clears the alarm of a process that has ended. */
    async answered(contract: Felt): Promise<void> {
      failures.delete(contract);
      await store.clearAlarms([alarmOf(contract)]);
    },
  };
}

/**
 * Sets the standard of a contract by hand, also while its classification fails; a reclassification replaces it. Running
 * processes use it within `STANDARDS_TTL_MS`.
 */
export async function setStandard(
  { pool, log }: Pick<StandardsOptions, 'pool' | 'log'>,
  contract: Felt,
  standard: TokenStandard,
  at: BlockPoint,
): Promise<{ before: ContractFacts | null; after: ContractFacts }> {
  const statements = createStatements(pool);
  const before = (await readStored(statements, [contract])).get(contract) ?? null;
  const decided = { standard, class_hash: before?.class_hash ?? null, basis: 'operator' as const };
  const after = await storeFacts(statements, contract, decided, at, REPLACE);
  await createAlarmStore(statements).clearAlarms([alarmOf(contract)]);
  log.info({ contract, before, after }, 'standard of a contract set by an operator');
  return { before, after };
}

async function readStored(
  { rows }: Statements,
  contracts: readonly Felt[],
): Promise<Map<Felt, ContractFacts>> {
  if (contracts.length === 0) return new Map();
  const found = await rows(
    standardRow,
    'SELECT contract, standard, class_hash FROM tds.contract_standards WHERE contract = ANY($1)',
    [contracts],
  );
  return new Map(found.map(({ contract, ...facts }) => [contract, facts]));
}

/** Returns the facts that are stored then. */
async function storeFacts(
  { rows }: Statements,
  contract: Felt,
  found: Classification,
  { height }: BlockPoint,
  onConflict: string,
): Promise<ContractFacts> {
  const [stored = found] = await rows(
    standardRow,
    `INSERT INTO tds.contract_standards (contract, standard, class_hash, basis, block) VALUES ($1, $2, $3, $4, $5)
     ON CONFLICT (contract) DO UPDATE SET ${onConflict} RETURNING contract, standard, class_hash`,
    [contract, found.standard, found.class_hash, found.basis, height],
  );
  return { standard: stored.standard, class_hash: stored.class_hash };
}

/** Classifies contracts with bounded concurrency; the ABI of a class is fetched once for all its contracts. */
function createChainLookup(node: ClassifyingNode) {
  const queue = new PQueue({ concurrency: CONCURRENCY });
  const classes = createLruCache<Felt, Promise<AbiVerdict>>(CACHED_CLASSES);
  const abiOf = (classHash: Felt, fetch: () => Promise<AbiVerdict>): Promise<AbiVerdict> => {
    const cached = classes.get(classHash);
    if (cached !== undefined) return cached;
    const fetching = fetch();
    classes.set(classHash, fetching);
    fetching.catch(() => classes.delete(classHash));
    return fetching;
  };
  return (contract: Felt, at: BlockPoint, priority = 0): Promise<Classification> => {
    const prioritized: ClassifyingNode = {
      call: (request, id) => node.call(request, id, { priority }),
      getClassAt: (of, id) => node.getClassAt(of, id, { priority }),
      getClassHashAt: (of, id) => node.getClassHashAt(of, id, { priority }),
    };
    return queue.add(() => classify(prioritized, contract, at, abiOf), { priority });
  };
}
