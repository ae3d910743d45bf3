import { z } from 'zod';

import { slug } from '../../schemas/catalogue.ts';
import { integerField, textField } from '../http/fields.ts';
import { address, integer, timestamp } from '../http/params.ts';

/** Parsers of wallet parameters and bodies. */

const network = textField({ max: 100 })
  .transform((name) => name.toLowerCase())
  .pipe(slug)
  .meta({ description: 'Such as mainnet or sepolia', override: { type: 'string', maxLength: 100 } });

export const registeredWallet = z.object({
  wallet_address: address(),
  network,
  wallet_type: textField({ max: 100, description: 'Wallet software' }),
});

export const activity = z.object({
  transaction_count: integerField({ min: 0 }),
  last_activity_at: timestamp('ISO 8601, UTC by default; not in the future').refine(
    (at) => at.getTime() >= 0,
    'Ensure this is not before 1970.',
  ),
});

export const walletParams = z.object({ id: integer({ min: 0 }) });
