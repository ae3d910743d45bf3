import { z } from 'zod';

import { parseFelt } from '../../schemas/felt.ts';
import type { Felt } from '../../schemas/felt.ts';
import { MAX_SUBSCRIPTIONS, webhookStatus } from '../../schemas/messages/commands.ts';
import { price } from '../../schemas/messages/prices.ts';
import { WEBHOOK_EVENTS } from '../../schemas/webhooks/events.ts';
import { integerField, textField } from '../http/fields.ts';
import { integer, refuse } from '../http/params.ts';

/** Parsers of a webhook's fields. */

const MAX_NAME_LENGTH = 100;
const MAX_URL_LENGTH = 2048;
const MAX_GRACE_SECONDS = 604_800;

/** Checked besides `URL.parse`, which repairs much invalid input. */
const URL_PATTERN = /^https?:\/\/[^\s\\\p{Cc}]+$/iu;

/** Why a text is no valid URL of a webhook; null: it is valid. Whether it may be called is checked apart. */
function urlError(text: string): string | null {
  const url = URL_PATTERN.test(text) ? URL.parse(text) : null;
  if (url === null) return 'Enter a valid URL: http:// or https://, and a host.';
  if (url.username !== '' || url.password !== '') return 'A URL with a user name or password is not allowed.';
  if (url.port === '0') return 'Port 0 cannot be called.';
  return text.includes('#') ? 'A URL with a fragment is not allowed.' : null;
}

const url = textField({ max: MAX_URL_LENGTH, description: 'Absolute, http or https' }).superRefine(
  (text, context) => {
    const message = urlError(text);
    if (message !== null) context.addIssue({ code: 'custom', message });
  },
);

const events = z
  .array(z.enum(WEBHOOK_EVENTS))
  .min(1)
  .max(WEBHOOK_EVENTS.length)
  .refine((names) => new Set(names).size === names.length, 'List each event once.')
  .meta({ override: { uniqueItems: true } });

const addressOrAny = z
  .string()
  .transform(
    (text, context): Felt | '' =>
      (text === '' ? '' : parseFelt(text)) ??
      refuse(context, 'Enter a valid address (0x and up to 64 hex digits).'),
  )
  .meta({
    description: 'Address in any 0x form; empty: any',
    override: { type: 'string', pattern: '^(0[xX][0-9a-fA-F]{1,64})?$' },
  })
  .default('');

const priceOrNone = z
  .string()
  .refine(
    (text) => text === '' || price.safeParse(text).success,
    'Enter a decimal of at most 15 digits before the point and 41 behind it, 0 or above; or nothing.',
  )
  .meta({ description: 'US dollars as a decimal; empty: none' })
  .default('');

const subscriptions = z
  .array(
    z
      .object({
        token: addressOrAny,
        address: addressOrAny,
        price_above: priceOrNone,
        price_below: priceOrNone,
      })
      .refine(
        ({ token, price_above, price_below }) => token !== '' || (price_above === '' && price_below === ''),
        {
          path: ['token'],
          message: 'A threshold needs a token.',
        },
      ),
  )
  .max(MAX_SUBSCRIPTIONS);

const name = textField({ max: MAX_NAME_LENGTH });

export const createdWebhook = z.object({ name, url, events, subscriptions: subscriptions.default([]) });

export const changedWebhook = z.object({
  name: name.exactOptional(),
  url: url.exactOptional(),
  events: events.exactOptional(),
  status: webhookStatus.exactOptional().meta({
    description:
      '`active` resets the count of dead deliveries; in any other status only tests and requested retries are sent',
  }),
  subscriptions: subscriptions
    .exactOptional()
    .meta({ description: 'Replaces all subscriptions of the webhook' }),
});

export const rotation = z.object({
  grace_period_seconds: integerField({
    min: 0,
    max: MAX_GRACE_SECONDS,
    description: 'Seconds for which the previous secret also signs',
  }).default(0),
});

export const webhookParams = z.object({ id: integer({ min: 0 }) });
