import { parseNetwork } from '../../networks.ts';
import type { Sql } from '../../postgres/client.ts';
import { userByLogin } from '../../../projections/accounts/queries.ts';
import type { UserForLogin } from '../../../projections/accounts/queries.ts';
import { AppError } from '../../../schemas/errors.ts';
import { apiKeyPrefix, hashSecret, randomApiKey } from '../../../api/auth/api-key.ts';
import type { CommandBus, CommandRequest } from '../../commands/bus.ts';
import { createPasswordChecker } from '../../../api/auth/passwords.ts';
import { hashPassword } from '../../password-hash.ts';
import { parseOriginRule } from '../../../api/auth/restrictions.ts';
import type { ServedBuilds } from '../../../projections/served.ts';

export interface OperatorDeps {
  readonly commands: CommandBus;
  readonly pool: Sql;
  readonly servedBuilds: () => Promise<ServedBuilds>;
}

const ACTOR = 'operator';

/** Creates a user (`tds users add`). Throws CONFLICT if the name is taken. */
export async function addUser(
  deps: OperatorDeps,
  user: { username: string; email?: string | null; password: string; isAdmin?: boolean },
): Promise<{ id: number }> {
  const { username, email = null, password, isAdmin = false } = user;
  if (!isName(username, 150)) {
    throw new AppError('INVALID', 'A username has 1 to 150 characters, none of them a control character');
  }
  if (email !== null && !/^[^\s@]{1,150}@[^\s@]{1,100}$/.test(email)) {
    throw new AppError('INVALID', `Not an e-mail address: ${email}`);
  }
  assertPassword(password);
  const result = await accepted(deps, {
    type: 'user.create',
    actor: ACTOR,
    body: { username, email, password_hash: await hashPassword(password), is_admin: isAdmin },
  });
  return { id: Number(result['id']) };
}

/** Sets a user's password and ends its sessions (`tds users password`). */
export async function setPassword(deps: OperatorDeps, username: string, password: string): Promise<void> {
  assertPassword(password);
  const user = await existingUser(deps, username);
  const body = { user_id: user.id, password_hash: await hashPassword(password) };
  await accepted(deps, { type: 'user.set-password', actor: ACTOR, body });
}

/** Disables or enables a user and its API keys (`tds users disable`, `tds users enable`). */
export async function setDisabled(deps: OperatorDeps, username: string, isDisabled: boolean): Promise<void> {
  const user = await existingUser(deps, username);
  const body = { user_id: user.id, is_disabled: isDisabled };
  await accepted(deps, { type: 'user.disable', actor: ACTOR, body });
}

/** Creates the user if missing. Returns its id, and the user that existed already: null if it was created. */
export async function createIfMissing(
  deps: OperatorDeps,
  user: { username: string; password: string; isAdmin?: boolean },
): Promise<{ id: number; existing: UserForLogin | null }> {
  const existing = await findUser(deps, user.username);
  if (existing !== null) return { id: existing.id, existing };
  try {
    return { ...(await addUser(deps, user)), existing: null };
  } catch (error) {
    // Created by another process meanwhile.
    if (!(error instanceof AppError) || error.code !== 'CONFLICT') throw error;
    return await createIfMissing(deps, user);
  }
}

/**
 * Creates the user of an embedded start if missing. If its password differs, sets it, or with `keepsPassword` leaves it
 * as it was changed.
 *
 * @returns whether the user has the password now
 */
export async function ensureUser(
  deps: OperatorDeps,
  user: { username: string; password: string; isAdmin?: boolean },
  { keepsPassword = false } = {},
): Promise<{ id: number; hasPassword: boolean }> {
  const { id, existing } = await createIfMissing(deps, user);
  if (existing === null) return { id, hasPassword: true };
  const passwords = await createPasswordChecker();
  if (await passwords.check(existing.password_hash, user.password)) return { id, hasPassword: true };
  if (keepsPassword) return { id, hasPassword: false };
  await accepted(deps, {
    type: 'user.set-password',
    actor: ACTOR,
    body: { user_id: id, password_hash: await hashPassword(user.password) },
  });
  return { id, hasPassword: true };
}

/** Creates an API key for a user (`tds keys add`); the key is returned only here. */
export async function addApiKey(
  deps: OperatorDeps,
  options: {
    username: string;
    name: string;
    allowedOrigins?: readonly string[];
    allowedIps?: readonly string[];
  },
): Promise<{ id: number; key: string }> {
  const { username, name, allowedOrigins = [], allowedIps = [] } = options;
  if (!isName(name, 100)) {
    throw new AppError('INVALID', "A key's name has 1 to 100 characters, none of them a control character");
  }
  const wrong = [
    ...allowedOrigins.filter((text) => parseOriginRule(text) === null),
    ...allowedIps.filter((text) => parseNetwork(text) === null),
  ];
  if (wrong.length > 0) throw new AppError('INVALID', `Not an origin or network: ${wrong.join(', ')}`);
  const user = await existingUser(deps, username);
  // The command would be refused as if the user did not exist.
  if (user.is_disabled) {
    throw new AppError(
      'CONFLICT',
      `User ${user.username} is disabled; \`tds users enable ${user.username}\` enables it`,
    );
  }
  const key = randomApiKey();
  const result = await accepted(deps, {
    type: 'api-key.create',
    actor: ACTOR,
    body: {
      user_id: user.id,
      name,
      key_hash: hashSecret(key),
      prefix: apiKeyPrefix(key),
      allowed_origins: [...allowedOrigins],
      allowed_ips: [...allowedIps],
      rate_limit_per_hour: null,
    },
  });
  return { id: Number(result['id']), key };
}

function isName(text: string, max: number): boolean {
  return text.trim() !== '' && text.length <= max && text.isWellFormed() && !/\p{Cc}/u.test(text);
}

function assertPassword(password: string): void {
  if (password.length < 8) throw new AppError('INVALID', 'A password has at least 8 characters');
}

async function existingUser(deps: OperatorDeps, username: string): Promise<UserForLogin> {
  const user = await findUser(deps, username);
  if (user === null) throw new AppError('NOT_FOUND', `Unknown user ${username}`);
  return user;
}

async function findUser({ pool, servedBuilds }: OperatorDeps, username: string) {
  return await userByLogin(pool, (await servedBuilds()).schema('accounts'), username);
}

/** Submits a command and returns its result; throws the reason of a refused one. */
export async function accepted(
  { commands }: OperatorDeps,
  request: CommandRequest,
): Promise<Readonly<Record<string, unknown>>> {
  const outcome = await commands.submit(request);
  if (outcome.accepted) return outcome.result;
  throw new AppError(outcome.result.code, outcome.result.detail);
}
