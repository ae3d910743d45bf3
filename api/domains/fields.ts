import { z } from 'zod';

import { normalDomain } from '../../infra/domains.ts';
import { linkOrNone } from '../../schemas/catalogue.ts';
import { hasWhitespaceOrControl } from '../../schemas/text.ts';
import { textField } from '../http/fields.ts';
import { integer, refuse } from '../http/params.ts';

/** Parsers of domain parameters and bodies. */

/** Maximum length of a host, or of a pasted link. */
const HOST_CHARACTERS = 2000;

/** A host in any spelling, or an http(s) link to it, as the normalized domain. */
export function host() {
  return z
    .string()
    .max(HOST_CHARACTERS)
    .transform(
      (text, context): string =>
        normalDomain(text) ?? refuse(context, 'Enter a valid host, such as app.example.org.'),
    )
    .meta({
      description: 'A host in any spelling, or a link to it',
      override: { type: 'string', maxLength: HOST_CHARACTERS },
    });
}

export const reportedDomain = z.object({
  domain: host(),
  category: textField({ max: 100, description: 'Such as phishing, scam, malware' }),
  reason: textField({ max: 10_000 }),
  evidence: z
    .string()
    .trim()
    .refine(
      (text) => linkOrNone.safeParse(text).success && !hasWhitespaceOrControl(text),
      'Enter a URL that begins with https:// or http://, of at most 2000 characters without whitespace.',
    )
    .default('')
    .meta({ description: 'A link; may be empty' }),
});

export const idParams = z.object({ id: integer({ min: 0 }) });
