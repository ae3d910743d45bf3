import PQueue from 'p-queue';

import { hashPassword, verifyPassword } from '../../infra/password-hash.ts';
import { unavailable } from '../http/errors.ts';

/** Further checks are rejected: each occupies a core for about 20 ms. */
const MAX_QUEUED = 100;

export interface PasswordChecker {
  /** Whether the password matches. Without a hash (unknown user) it takes as long and is false. */
  check(passwordHash: string | null, password: string): Promise<boolean>;
}

/** Runs at most two checks at a time. */
export async function createPasswordChecker(): Promise<PasswordChecker> {
  const queue = new PQueue({ concurrency: 2 });
  const decoy = await hashPassword('the password of no user');
  return {
    async check(passwordHash, password) {
      if (queue.size >= MAX_QUEUED) {
        throw unavailable('unavailable', 'The service is temporarily unavailable.', 1);
      }
      const matches = await queue.add(async () => await verifyPassword(passwordHash ?? decoy, password));
      return matches && passwordHash !== null;
    },
  };
}
