import { InvalidArgumentError } from 'commander';

import { AppError } from '../../../schemas/errors.ts';
import { parseFelt } from '../../../schemas/felt.ts';
import type { Felt } from '../../../schemas/felt.ts';

/** @throws `INVALID` */
export function addressOf(text: string): Felt {
  const address = parseFelt(text);
  if (address === null) throw new AppError('INVALID', `Not an address: ${text}`);
  return address;
}

export function nonNegativeInteger(text: string): number {
  if (!/^\d{1,15}$/.test(text)) throw new InvalidArgumentError('must be a non-negative integer.');
  return Number(text);
}

export function positiveInteger(text: string): number {
  if (!/^[1-9]\d{0,8}$/.test(text)) throw new InvalidArgumentError('must be a positive integer.');
  return Number(text);
}
