import type { ServedBuilds } from '../../../projections/served.ts';
import { AppError } from '../../../schemas/errors.ts';
import type { MatchDeps } from '../deps.ts';

/**
 * Reads from the served builds.
 *
 * @throws a retryable READ_MODEL_NOT_BUILT where one of them is not built: the block, token or price may well be known
 */
export async function readBuilt<T>(
  { readServed }: Pick<MatchDeps, 'readServed'>,
  read: (served: ServedBuilds) => Promise<T>,
): Promise<T> {
  const result = await readServed(async (served) => ({ found: await read(served) }));
  if (result !== null) return result.found;
  throw new AppError('READ_MODEL_NOT_BUILT', 'A read model that webhooks need is not built yet', {
    retryable: true,
  });
}
