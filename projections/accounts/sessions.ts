import type { CommandOf } from '../../schemas/messages/commands.ts';
import { accept, refuse } from '../commands.ts';
import type { Decision } from '../commands.ts';

interface SessionRow {
  readonly token_hash: string;
  readonly user_id: number;
  readonly created_at: number;
  readonly expires_at: number;
}

export type SessionChange =
  | { readonly type: 'session.opened'; readonly session: SessionRow }
  | { readonly type: 'session.closed'; readonly tokenHash: string };

export interface SessionsState {
  readonly userExists: boolean;
  readonly sessionExists: boolean;
  /** Whether the password was checked against the hash that the user has now. */
  readonly isPasswordCurrent: boolean;
}

export function decideSession(
  state: SessionsState,
  command: CommandOf<'session.open' | 'session.close'>,
): Decision<SessionChange> {
  switch (command.type) {
    case 'session.open': {
      const { user_id, token_hash, expires_at } = command.body;
      if (!state.userExists) return refuse('NOT_FOUND', 'No such user.');
      if (!state.isPasswordCurrent) return refuse('CONFLICT', 'The password was changed.');
      if (state.sessionExists) return refuse('CONFLICT', 'This session exists.');
      const session = { token_hash, user_id, created_at: command.issued_at, expires_at };
      return accept({ expires_at }, { type: 'session.opened', session });
    }
    case 'session.close':
      if (!state.sessionExists) return refuse('NOT_FOUND', 'No such session.');
      return accept({}, { type: 'session.closed', tokenHash: command.body.token_hash });
  }
}
