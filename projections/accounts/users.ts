import type { CommandOf } from '../../schemas/messages/commands.ts';
import { accept, refuse } from '../commands.ts';
import type { Decision } from '../commands.ts';

interface UserRow {
  readonly id: number;
  readonly username: string;
  readonly email: string | null;
  readonly username_key: string;
  readonly email_key: string | null;
  readonly password_hash: string;
  readonly is_admin: boolean;
  readonly created_at: number;
}

export type UserChange =
  | { readonly type: 'user.added'; readonly user: UserRow }
  | { readonly type: 'user.password-set'; readonly id: number; readonly passwordHash: string }
  /** null: enabled again. */
  | { readonly type: 'user.disabled'; readonly id: number; readonly at: number | null };

/** The normalised form of a login, equal for all its spellings. */
export function loginKey(login: string): string {
  return login.normalize('NFKC').trim().toLowerCase();
}

export interface UsersState {
  /** Logins of the command that a user already has, as username or e-mail address. */
  readonly takenLogins: ReadonlySet<string>;
  readonly userExists: boolean;
}

export function decideUser(
  state: UsersState,
  command: CommandOf<'user.create' | 'user.set-password' | 'user.disable'>,
  newId: number,
): Decision<UserChange> {
  switch (command.type) {
    case 'user.create': {
      const { username, email, password_hash, is_admin } = command.body;
      const usernameKey = loginKey(username);
      const emailKey = email === null ? null : loginKey(email);
      // Both log in, so neither may be another user's username or e-mail address.
      if (state.takenLogins.has(usernameKey)) return refuse('CONFLICT', 'This username is taken.');
      if (emailKey !== null && state.takenLogins.has(emailKey)) {
        return refuse('CONFLICT', 'This e-mail address is taken.');
      }
      const user = {
        id: newId,
        username,
        email,
        username_key: usernameKey,
        email_key: emailKey,
        password_hash,
        is_admin,
        created_at: command.issued_at,
      };
      return accept({ id: newId, username, email }, { type: 'user.added', user });
    }
    case 'user.set-password': {
      const { user_id: id, password_hash: passwordHash } = command.body;
      if (!state.userExists) return refuse('NOT_FOUND', 'No such user.');
      return accept({ id }, { type: 'user.password-set', id, passwordHash });
    }
    case 'user.disable': {
      const { user_id: id, is_disabled: isDisabled } = command.body;
      if (!state.userExists) return refuse('NOT_FOUND', 'No such user.');
      return accept({ id }, { type: 'user.disabled', id, at: isDisabled ? command.issued_at : null });
    }
  }
}
