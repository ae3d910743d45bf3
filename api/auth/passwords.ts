import PQueue from 'p-queue';

import { hashPassword, verifyPassword } from '../../infra/password-hash.ts';
import { unavailable } from '../http/errors.ts';

/** Checks that wait; more are refused, as each takes a core for some 20 ms. */
const WAITING = 100;

export interface PasswordChecker {
  /** True when the password is right. Without a hash (no such user) it takes the same time and is false. */
  check(passwordHash: string | null, password: string): Promise<boolean>;
}

/** At most two checks run side by side. */
export async function createPasswordChecker(): Promise<PasswordChecker> {
  const queue = new PQueue({ concurrency: 2 });
  const nobody = await hashPassword('nobody has this password');
  return {
    async check(passwordHash, password) {
      if (queue.size >= WAITING) {
        throw unavailable('unavailable', 'The service is temporarily unavailable.', 1);
      }
      const isRight = await queue.add(async () => await verifyPassword(passwordHash ?? nobody, password));
      return isRight && passwordHash !== null;
    },
  };
}
