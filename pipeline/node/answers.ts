import { z } from 'zod';

import { parseFelt } from '../../schemas/felt.ts';
import type { Felt } from '../../schemas/felt.ts';
import { height } from '../../schemas/messages/common.ts';
import { invalidAnswer } from './errors.ts';
import type { BlockPoint, ContractClass } from './types.ts';

/** A felt in any hex form the specification allows, made canonical. */
const looseFelt = z.string().transform((text, context): Felt => {
  const parsed = parseFelt(text);
  if (parsed !== null) return parsed;
  context.addIssue('not a felt');
  return z.NEVER;
});

const point = z
  .object({ block_number: height, block_hash: looseFelt })
  .transform((answer): BlockPoint => ({ height: answer.block_number, hash: answer.block_hash }));

/** A Cairo 0 class has its ABI as a list, a Sierra class as JSON in a string; either may be missing or unreadable. */
const contractClass = z
  .looseObject({ abi: z.union([z.string(), z.array(z.unknown()), z.null()]).optional() })
  .transform(({ abi }): ContractClass => ({ abi: typeof abi === 'string' ? readAbi(abi) : (abi ?? []) }));

function readAbi(text: string): readonly unknown[] {
  try {
    const abi: unknown = JSON.parse(text);
    return Array.isArray(abi) ? abi : [];
  } catch {
    return [];
  }
}

function reader<T>(what: string, schema: z.ZodType<T>): (result: unknown) => T {
  return (result) => {
    const parsed = schema.safeParse(result);
    if (!parsed.success) throw invalidAnswer(`${what}: ${z.prettifyError(parsed.error)}`, parsed.error);
    return parsed.data;
  };
}

export const readHeight = reader('height', height);
export const readPoint = reader('block', point);
export const readFelt = reader('felt', looseFelt);
export const readFelts = reader('felts', z.array(looseFelt));
export const readVersion = reader('version', z.string().regex(/^v?\d+\.\d+(\.\d+)?/));
export const readClass = reader('class', contractClass);
