import { verificationAnswer } from '../../schemas/api/admin/verification.ts';
import { defineRoute } from '../http/route.ts';
import type { Route } from '../http/route.ts';
import type { Operator } from './operator.ts';

export function verificationRoutes({ operator }: { readonly operator: Operator }): Route[] {
  const verification = defineRoute({
    id: 'getAdminVerification',
    method: 'GET',
    path: '/api/admin/verification/',
    summary: 'Show the results of the last verifications and of sampling',
    description:
      'What the last runs of `tds verify` have found, and the blocks that the service samples by itself.',
    tag: 'Administration',
    auth: 'admin',
    asOf: 'This route returns the current state.',
    response: { 200: verificationAnswer },
    handler: async () => ({ status: 200, body: await operator.verification() }),
  });
  return [verification];
}
