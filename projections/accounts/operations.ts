import type { CommandOf } from '../../schemas/messages/commands.ts';
import { accept, refuse } from '../commands.ts';
import type { Decision } from '../commands.ts';

export type OperationCommand = CommandOf<
  'quarantine.retry' | 'quarantine.skip' | 'rebuild.start' | 'rebuild.abort' | 'verify.start'
>;

/**
 * Whether an admin may ask for an operation. It changes no table: a process of `project` carries out what the outcome says
 * (infra/bin/operator/operations.ts).
 */
export function decideOperation(
  { isAdmin }: { readonly isAdmin: boolean },
  command: OperationCommand,
): Decision<never> {
  if (!isAdmin) return refuse('CONFLICT', 'This user is not an admin.');
  const { user_id: userId } = command.body;
  const operation = { operation: command.type, requested_by: `user:${userId}` };
  switch (command.type) {
    case 'quarantine.retry':
    case 'quarantine.skip':
      return accept({ ...operation, subject: command.body.entry_id, swap: null });
    case 'rebuild.start':
      return accept({ ...operation, subject: command.body.projection, swap: command.body.swap });
    case 'rebuild.abort':
      return accept({ ...operation, subject: command.body.projection, swap: null });
    case 'verify.start':
      return accept({ ...operation, subject: 'all', swap: null });
  }
}
