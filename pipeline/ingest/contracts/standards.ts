import PQueue from 'p-queue';
import { z } from 'zod';

import type { Logger } from '../../../infra/log.ts';
import { isPostgresUnavailable, sqlRows } from '../../../infra/postgres/client.ts';
import type { Pool } from '../../../infra/postgres/client.ts';
import { AppError } from '../../../schemas/errors.ts';
import type { Felt } from '../../../schemas/felt.ts';
import type { ContractFacts } from '../../../schemas/messages/chain-blocks.ts';
import { felt, tokenStandard } from '../../../schemas/messages/common.ts';
import type { BlockPoint } from '../../node/types.ts';
import { classify } from './classify.ts';
import type { AbiVerdict, Classification, ClassifyingNode } from './classify.ts';
import { createLruCache } from '../../../infra/lru.ts';

export interface Standards {
  /**
   * What each of these contracts is, as the `contracts` map of a block wants it. Asks the chain for those that are not
   * known; a contract is looked up once, however many ask.
   *
   * @throws retryable when any look-up failed for a reason that is not the chain's answer; the others are kept
   */
  resolve(contracts: readonly Felt[], at: BlockPoint): Promise<Map<Felt, ContractFacts>>;
  /** Asks the chain again and keeps its answer. Other processes know of it within `REREAD_MS`. */
  reclassify(contract: Felt, at: BlockPoint): Promise<{ before: ContractFacts | null; after: ContractFacts }>;
}

export interface StandardsOptions {
  readonly node: ClassifyingNode;
  readonly pool: Pool;
  readonly log: Logger;
  readonly now?: () => number;
  /** Contracts looked up side by side. */
  readonly concurrency?: number;
}

/** How long an answer is used without looking at the table: the time a `reclassify` takes to reach every process. */
export const REREAD_MS = 5000;
/** About 300 bytes each. */
const REMEMBERED_CONTRACTS = 100_000;
const REMEMBERED_CLASSES = 20_000;

const storedRow = z.object({ contract: felt, standard: tokenStandard, class_hash: felt.nullable() });

export function createStandards(options: StandardsOptions): Standards {
  const { node, pool, log, now = Date.now } = options;
  const queue = new PQueue({ concurrency: options.concurrency ?? 16 });
  const remembered = createLruCache<Felt, { facts: ContractFacts; readAt: number }>(REMEMBERED_CONTRACTS);
  const classes = createLruCache<Felt, Promise<AbiVerdict>>(REMEMBERED_CLASSES);
  const lookUps = new Map<Felt, Promise<ContractFacts>>();

  const remember = (contract: Felt, facts: ContractFacts): ContractFacts => {
    remembered.set(contract, { facts, readAt: now() });
    return facts;
  };

  /** One fetch for all contracts of a class; one that failed is forgotten. */
  const abiOf = (classHash: Felt, fetch: () => Promise<AbiVerdict>): Promise<AbiVerdict> => {
    const known = classes.get(classHash);
    if (known !== undefined) return known;
    const fetching = fetch();
    classes.set(classHash, fetching);
    fetching.catch(() => classes.delete(classHash));
    return fetching;
  };

  const askChain = (contract: Felt, at: BlockPoint): Promise<Classification> =>
    queue.add(() => classify(node, contract, at, abiOf));

  const lookUp = (contract: Felt, at: BlockPoint): Promise<ContractFacts> => {
    const running = lookUps.get(contract);
    if (running !== undefined) return running;
    const looking = (async () => {
      const found = await askChain(contract, at);
      const facts = await keep(pool, contract, found, at);
      log.debug({ contract, ...facts, basis: found.basis, block: at.height }, 'contract classified');
      return remember(contract, facts);
    })().finally(() => lookUps.delete(contract));
    lookUps.set(contract, looking);
    return looking;
  };

  return {
    async resolve(contracts, at) {
      const facts = new Map<Felt, ContractFacts>();
      const due = now() - REREAD_MS;
      const asked = [...new Set(contracts)];
      for (const contract of asked) {
        const known = remembered.get(contract);
        if (known !== undefined && known.readAt > due) facts.set(contract, known.facts);
      }
      const unsure = asked.filter((contract) => !facts.has(contract));
      for (const [contract, stored] of await read(pool, unsure)) {
        facts.set(contract, remember(contract, stored));
      }
      const missing = unsure.filter((contract) => !facts.has(contract));
      const outcomes = await Promise.allSettled(missing.map((contract) => lookUp(contract, at)));
      outcomes.forEach((outcome, index) => {
        if (outcome.status === 'rejected') throw outcome.reason;
        const contract = missing[index];
        if (contract !== undefined) facts.set(contract, outcome.value);
      });
      return facts;
    },

    async reclassify(contract, at) {
      const before = (await read(pool, [contract])).get(contract) ?? null;
      const found = await askChain(contract, at);
      const after = { standard: found.standard, class_hash: found.class_hash };
      await stored(() =>
        pool.query(
          `INSERT INTO tds.contract_standards (contract, standard, class_hash, basis, block) VALUES ($1, $2, $3, $4, $5)
           ON CONFLICT (contract) DO UPDATE SET standard = excluded.standard, class_hash = excluded.class_hash,
             basis = excluded.basis, block = excluded.block, classified_at = now()`,
          [contract, found.standard, found.class_hash, found.basis, at.height],
        ),
      );
      log.info({ contract, before, after, basis: found.basis }, 'contract classified again');
      return { before, after: remember(contract, after) };
    },
  };
}

async function read(pool: Pool, contracts: readonly Felt[]): Promise<Map<Felt, ContractFacts>> {
  if (contracts.length === 0) return new Map();
  const rows = await stored(() =>
    sqlRows(
      pool,
      storedRow,
      'SELECT contract, standard, class_hash FROM tds.contract_standards WHERE contract = ANY($1)',
      [contracts],
    ),
  );
  return new Map(rows.map(({ contract, ...facts }) => [contract, facts]));
}

/** Keeps an answer unless another process was first; what is kept is what everybody says. */
async function keep(
  pool: Pool,
  contract: Felt,
  found: Classification,
  at: BlockPoint,
): Promise<ContractFacts> {
  const [row] = await stored(() =>
    sqlRows(
      pool,
      storedRow,
      `INSERT INTO tds.contract_standards (contract, standard, class_hash, basis, block) VALUES ($1, $2, $3, $4, $5)
       ON CONFLICT (contract) DO UPDATE SET contract = excluded.contract
       RETURNING contract, standard, class_hash`,
      [contract, found.standard, found.class_hash, found.basis, at.height],
    ),
  );
  return {
    standard: row?.standard ?? found.standard,
    class_hash: row === undefined ? found.class_hash : row.class_hash,
  };
}

async function stored<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (cause) {
    if (!isPostgresUnavailable(cause)) throw cause;
    throw new AppError('STORE_UNAVAILABLE', 'Postgres did not answer', { retryable: true, cause });
  }
}
