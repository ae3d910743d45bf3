import { z } from 'zod';

import { catalogueRecords, domainName, linkOrNone, riskLevel, slug, walletType } from '../catalogue.ts';
import { isStorable } from '../text.ts';
import { WEBHOOK_EVENTS } from '../webhooks/events.ts';
import { felt, unixMillis } from './common.ts';
import { price } from './prices.ts';

/** An argon2id hash in PHC string format. */
const passwordHash = z.string().startsWith('$argon2id$');
/** Lowercase hex SHA-256. */
const sha256 = z.string().regex(/^[0-9a-f]{64}$/);
const userId = z.int().positive();
/** What PostgreSQL can hold, as text and inside JSON: a command that it cannot store would halt all that come after. */
const text = z.string().refine(isStorable, 'holds a NUL character or half of a surrogate pair');

/**
 * Commands: what users and operators ask for. The projector decides each once, in log order, from the state and the
 * command alone: time is `issued_at`, integer ids are the offset plus one, values from settings travel in the body.
 * Plain keys, passwords and tokens never enter the log, only their hashes.
 */
const envelope = {
  v: z.literal(1),
  /** Names the command; the same id twice is one command. */
  id: text.min(1).max(200),
  issued_at: unixMillis,
  /** Who asks: `user:<id>`, `operator`, `system`. */
  actor: text,
  /**
   * Keyed hash of the request that the command came from, so that a repeat of an id with another request is noticed.
   * Keyed, because a request may hold what must not be guessed from a hash.
   */
  request_hash: sha256.nullable(),
};

const userCreate = z.object({
  ...envelope,
  type: z.literal('user.create'),
  body: z.object({
    username: text.min(1),
    email: text.min(1).nullable(),
    password_hash: passwordHash,
    is_admin: z.boolean(),
  }),
});
/** Ends every session of the user. */
const userSetPassword = z.object({
  ...envelope,
  type: z.literal('user.set-password'),
  body: z.object({ user_id: userId, password_hash: passwordHash }),
});
/** Shuts the user out, or lets it in again. Ends every session of the user; its API keys are refused while it lasts. */
const userDisable = z.object({
  ...envelope,
  type: z.literal('user.disable'),
  body: z.object({ user_id: userId, is_disabled: z.boolean() }),
});
const sessionOpen = z.object({
  ...envelope,
  type: z.literal('session.open'),
  body: z.object({ user_id: userId, token_hash: sha256, expires_at: unixMillis }),
});
const sessionClose = z.object({
  ...envelope,
  type: z.literal('session.close'),
  body: z.object({ token_hash: sha256 }),
});
const apiKeyCreate = z.object({
  ...envelope,
  type: z.literal('api-key.create'),
  body: z.object({
    user_id: userId,
    name: text.min(1),
    key_hash: sha256,
    /** The first characters of the key, to recognise it by. */
    prefix: text,
    allowed_origins: z.array(text),
    allowed_ips: z.array(text),
    rate_limit_per_hour: z.int().positive().max(2_147_483_647).nullable(),
    /** Unix milliseconds from which on it is as good as deleted; absent: it stays good. */
    expires_at: unixMillis.optional(),
  }),
});
const apiKeyDelete = z.object({
  ...envelope,
  type: z.literal('api-key.delete'),
  body: z.object({ user_id: userId, key_id: z.int() }),
});

/** A blob of the encrypted sync, whose signature was found right. */
const syncPut = z.object({
  ...envelope,
  type: z.literal('sync.put'),
  body: z.object({
    lookup_hash: z.string().regex(/^[0-9a-f]+$/),
    version: z.int().min(1),
    blob: text,
    /**
     * With which key the signature was found right: the one that this command has stored; null: the one that comes with
     * this command, because there was none.
     */
    verified_with: text.nullable(),
    /** Sealed; present where `verified_with` is null, or where the stored one is sealed anew; null: it stays. */
    auth_key: text.nullable(),
  }),
});

export const webhookStatus = z.enum(['active', 'paused', 'disabled']);

const webhookEvents = z.array(z.enum(WEBHOOK_EVENTS)).min(1);
/** So many at most: their ids are made of the command's. */
export const MAX_SUBSCRIPTIONS = 1000;
const subscriptions = z
  .array(
    z.object({
      /** '': any. */
      token: felt.or(z.literal('')),
      address: felt.or(z.literal('')),
      /** '': none. */
      price_above: price.or(z.literal('')),
      price_below: price.or(z.literal('')),
    }),
  )
  .max(MAX_SUBSCRIPTIONS);
const webhookId = z.int();
/** Sealed for its user: `secretOf` in projections/webhooks/queries.ts. */
const sealedSecret = text.min(1);
const ofWebhook = { user_id: userId, webhook_id: webhookId };

const webhookCreate = z.object({
  ...envelope,
  type: z.literal('webhook.create'),
  body: z.object({
    user_id: userId,
    name: text.min(1),
    url: text.min(1),
    events: webhookEvents,
    subscriptions,
    secret: sealedSecret,
    /** The head's height when it was asked for, -1 when none was known: nothing at or below it is ever sent. */
    from_block: z.int().min(-1),
    /** Webhooks that a user may have. */
    most: z.int().positive(),
  }),
});
/** Changes what it names. */
const webhookUpdate = z.object({
  ...envelope,
  type: z.literal('webhook.update'),
  body: z.object({
    ...ofWebhook,
    name: text.min(1).exactOptional(),
    url: text.min(1).exactOptional(),
    events: webhookEvents.exactOptional(),
    status: webhookStatus.exactOptional(),
    /** In place of all that it has. */
    subscriptions: subscriptions.exactOptional(),
  }),
});
const webhookDelete = z.object({
  ...envelope,
  type: z.literal('webhook.delete'),
  body: z.object(ofWebhook),
});
const webhookRotateSecret = z.object({
  ...envelope,
  type: z.literal('webhook.rotate-secret'),
  body: z.object({
    ...ofWebhook,
    secret: sealedSecret,
    /** For so long the secret before is good, too; the one before that is not. */
    grace_seconds: z.int().min(0),
  }),
});
const webhookTest = z.object({
  ...envelope,
  type: z.literal('webhook.test'),
  body: z.object({ ...ofWebhook, delivery_id: z.uuid() }),
});
const deliveryRetry = z.object({
  ...envelope,
  type: z.literal('delivery.retry'),
  body: z.object({ ...ofWebhook, delivery_id: z.uuid() }),
});
/** By the service itself, where deliveries died in a row; of an earlier activation it changes nothing. */
const webhookDisable = z.object({
  ...envelope,
  type: z.literal('webhook.disable'),
  body: z.object({ webhook_id: webhookId, activation: z.int(), reason: text.min(1) }),
});

const importId = text.min(1).max(200);
/** Sends records ahead of the import that takes them in; the same part of an import sent again changes nothing. */
const cataloguePart = z.object({
  ...envelope,
  type: z.literal('catalogue.part'),
  body: z.object({ import_id: importId, part: z.int().min(0), records: catalogueRecords }),
});
/** Takes in all that the parts 0 to `parts - 1` hold, or, where one is missing or a category is unknown, nothing. */
const catalogueImport = z.object({
  ...envelope,
  type: z.literal('catalogue.import'),
  body: z.object({ import_id: importId, parts: z.int().min(1) }),
});
const walletRegister = z.object({
  ...envelope,
  type: z.literal('wallet.register'),
  body: z.object({ wallet_address: felt, network: slug, wallet_type: walletType }),
});
/** Its counters only rise. */
const walletUpdateActivity = z.object({
  ...envelope,
  type: z.literal('wallet.update-activity'),
  body: z.object({ wallet_id: z.int(), transaction_count: z.int().min(0), last_activity_at: unixMillis }),
});
const domainReport = z.object({
  ...envelope,
  type: z.literal('domain.report'),
  body: z.object({
    user_id: userId,
    domain: domainName,
    category: text.min(1).max(100),
    reason: text.min(1).max(10_000),
    evidence: linkOrNone,
  }),
});
/** Approved, its domain is blacklisted, with this risk. */
const reportReview = z.object({
  ...envelope,
  type: z.literal('report.review'),
  body: z.discriminatedUnion('decision', [
    z.object({ decision: z.literal('rejected'), report_id: z.int() }),
    z.object({
      decision: z.literal('approved'),
      report_id: z.int(),
      risk_level: riskLevel,
      /** Also a domain that is whitelisted; else that is refused. */
      overrides_whitelist: z.boolean(),
    }),
  ]),
});

/** `pg_notify` channel on which the ids of decided commands are told, after the commit. */
export const DECIDED_CHANNEL = 'tds_commands_decided';

export const commandsMessage = z.discriminatedUnion('type', [
  userCreate,
  userSetPassword,
  userDisable,
  sessionOpen,
  sessionClose,
  apiKeyCreate,
  apiKeyDelete,
  syncPut,
  webhookCreate,
  webhookUpdate,
  webhookDelete,
  webhookRotateSecret,
  webhookTest,
  deliveryRetry,
  webhookDisable,
  cataloguePart,
  catalogueImport,
  walletRegister,
  walletUpdateActivity,
  domainReport,
  reportReview,
]);
export type Command = z.infer<typeof commandsMessage>;
export type CommandType = Command['type'];
/** The command of one type: `CommandOf<'user.create'>`. */
export type CommandOf<T extends CommandType> = Extract<Command, { type: T }>;
