import { hash, verify } from '@node-rs/argon2';
import PQueue from 'p-queue';

import { unavailable } from '../http/errors.ts';

/** Of argon2id, which is the library's default: 19 MiB, two passes, one lane, as OWASP recommends. */
const PARAMETERS = { memoryCost: 19_456, timeCost: 2, parallelism: 1 };

/** Checks that wait; more are refused, as each takes a core for some 20 ms. */
const WAITING = 100;

export async function hashPassword(password: string): Promise<string> {
  return await hash(password, PARAMETERS);
}

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
      const isRight = await queue.add(async () => await verify(passwordHash ?? nobody, password));
      return isRight && passwordHash !== null;
    },
  };
}
