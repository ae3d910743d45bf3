import { z } from 'zod';

/** An address or hash in answers. */
export const canonicalHex = z
  .string()
  .regex(/^0x[0-9a-f]{64}$/)
  .meta({ example: '0x049d36570d4e46f48e99674bd3fcc84644ddd6b96f7c741b1562b82f9e004dc7' });

/** A raw unsigned integer of up to 256 bits. */
export const uintString = z
  .string()
  .regex(/^(0|[1-9][0-9]{0,77})$/)
  .meta({ description: 'Raw unsigned integer' });
