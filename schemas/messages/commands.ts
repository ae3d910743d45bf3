import { z } from 'zod';

import { catalogueRecords, domainName, linkOrNone, riskLevel, slug, walletType } from '../catalogue.ts';
import { WEBHOOK_EVENTS } from '../webhooks/events.ts';
import { felt, storableText as text, unixMillis } from './common.ts';
import { price } from './prices.ts';

/** An argon2id hash in PHC string format. */
const passwordHash = z.string().startsWith('$argon2id$');
/** Lowercase hex SHA-256. */
const sha256 = z.string().regex(/^[0-9a-f]{64}$/);
const userId = z.int().positive();

/**
 * Requests of users and operators. The projector decides each once, in log order, from the state and the command alone:
 * time is `issued_at`, integer ids are the offset plus one, and the body carries values from settings, so that a replay
 * decides the same. Only hashes of keys, passwords and tokens enter the log.
 */
const envelope = {
  v: z.literal(1),
  /** Commands with the same id are decided once. */
  id: text.min(1).max(200),
  issued_at: unixMillis,
  /** `user:<id>`, `operator` or `system`. */
  actor: text,
  /**
   * Keyed hash of the HTTP request, to detect an id that is reused with another request. Keyed, because a plain hash would
   * allow guessing secrets in the request.
   */
  request_hash: sha256.nullable(),
};

/** The schema of a command, by the fields of its body. */
const command = <T extends string, B extends z.ZodRawShape>(type: T, body: B) =>
  z.object({ ...envelope, type: z.literal(type), body: z.object(body) });

const userCreate = command('user.create', {
  username: text.min(1),
  email: text.min(1).nullable(),
  password_hash: passwordHash,
  is_admin: z.boolean(),
});
/** Ends all sessions of the user. */
const userSetPassword = command('user.set-password', { user_id: userId, password_hash: passwordHash });
/** Disables or enables a user. Ends all its sessions; its API keys are rejected while it is disabled. */
const userDisable = command('user.disable', { user_id: userId, is_disabled: z.boolean() });
const sessionOpen = command('session.open', {
  user_id: userId,
  token_hash: sha256,
  expires_at: unixMillis,
  /** The hash that the password was checked against: refused where it is no longer the user's. Absent: not compared. */
  password_hash: passwordHash.optional(),
});
const sessionClose = command('session.close', { token_hash: sha256 });
const ratePerHour = z.int().positive().max(2_147_483_647).nullable();
const apiKeyCreate = command('api-key.create', {
  user_id: userId,
  name: text.min(1),
  key_hash: sha256,
  /** First characters of the key, shown in lists. */
  prefix: text,
  allowed_origins: z.array(text),
  allowed_ips: z.array(text),
  rate_limit_per_hour: ratePerHour,
  /** The key is rejected from then on; absent: never. */
  expires_at: unixMillis.optional(),
});
/** Absent fields keep their value. */
const apiKeyUpdate = command('api-key.update', {
  user_id: userId,
  key_id: z.int(),
  name: text.min(1).exactOptional(),
  allowed_origins: z.array(text).exactOptional(),
  allowed_ips: z.array(text).exactOptional(),
  rate_limit_per_hour: ratePerHour.exactOptional(),
  /** null: never. */
  expires_at: unixMillis.nullable().exactOptional(),
});
const apiKeyDelete = command('api-key.delete', { user_id: userId, key_id: z.int() });

/** Stores an encrypted sync blob; the API has verified its signature. */
const syncPut = command('sync.put', {
  lookup_hash: z.string().regex(/^[0-9a-f]+$/),
  version: z.int().min(1),
  blob: text,
  /**
   * The stored key that verified the signature; null: the key in this command verified it, because none was stored.
   */
  verified_with: text.nullable(),
  /** Sealed key to store: a first key, or the stored one sealed under a new SECRET_KEY; null: keep the stored one. */
  auth_key: text.nullable(),
});

export const webhookStatus = z.enum(['active', 'paused', 'disabled']);

const webhookEvents = z.array(z.enum(WEBHOOK_EVENTS)).min(1);
/** Bounded because subscription ids are derived from the command's id. */
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

const webhookCreate = command('webhook.create', {
  user_id: userId,
  name: text.min(1),
  url: text.min(1),
  events: webhookEvents,
  subscriptions,
  secret: sealedSecret,
  /** Height of the head at the request, -1 if unknown: events at or below it are never sent. */
  from_block: z.int().min(-1),
  /** Maximum number of webhooks of a user. */
  most: z.int().positive(),
});
/** Absent fields keep their value. */
const webhookUpdate = command('webhook.update', {
  ...ofWebhook,
  name: text.min(1).exactOptional(),
  url: text.min(1).exactOptional(),
  events: webhookEvents.exactOptional(),
  status: webhookStatus.exactOptional(),
  /** Replaces all subscriptions. */
  subscriptions: subscriptions.exactOptional(),
});
const webhookDelete = command('webhook.delete', ofWebhook);
const webhookRotateSecret = command('webhook.rotate-secret', {
  ...ofWebhook,
  secret: sealedSecret,
  /** How long deliveries are also signed by the previous secret; older secrets are dropped. */
  grace_seconds: z.int().min(0),
});
const webhookTest = command('webhook.test', { ...ofWebhook, delivery_id: z.uuid() });
const deliveryRetry = command('delivery.retry', {
  ...ofWebhook,
  delivery_id: z.uuid(),
  /** The answer to a request that retries several deliveries, in the first of its commands. */
  answer: z.object({ retried: z.array(z.uuid()), remaining: z.int().min(0) }).exactOptional(),
});
/** Issued by the dispatcher after too many dead deliveries in a row; ignored if the webhook was activated again since. */
const webhookDisable = command('webhook.disable', {
  webhook_id: webhookId,
  activation: z.int(),
  reason: text.min(1),
});

const importId = text.min(1).max(200);
/** Uploads records of an import before `catalogue.import` applies them; uploading a part twice has no effect. */
const cataloguePart = command('catalogue.part', {
  import_id: importId,
  part: z.int().min(0),
  records: catalogueRecords,
});
/** Applies parts 0 to `parts - 1` together; refused if a part is missing or a category unknown. */
const catalogueImport = command('catalogue.import', { import_id: importId, parts: z.int().min(1) });
const walletRegister = command('wallet.register', {
  wallet_address: felt,
  network: slug,
  wallet_type: walletType,
});
/** Counters never decrease. */
const walletUpdateActivity = command('wallet.update-activity', {
  wallet_id: z.int(),
  transaction_count: z.int().min(0),
  last_activity_at: unixMillis,
});
const domainReport = command('domain.report', {
  user_id: userId,
  domain: domainName,
  category: text.min(1).max(100),
  reason: text.min(1).max(10_000),
  evidence: linkOrNone,
});
/** An approval blacklists the reported domain. */
const reportReview = z.object({
  ...envelope,
  type: z.literal('report.review'),
  body: z.discriminatedUnion('decision', [
    z.object({ decision: z.literal('rejected'), report_id: z.int() }),
    z.object({
      decision: z.literal('approved'),
      report_id: z.int(),
      risk_level: riskLevel,
      /** false: refused if the domain is whitelisted. */
      overrides_whitelist: z.boolean(),
    }),
  ]),
});

/** What an admin asks for through the API. Its outcome is carried out by a process of `project`. */
const quarantineRetry = command('quarantine.retry', { user_id: userId, entry_id: text.min(1).max(300) });
const quarantineSkip = command('quarantine.skip', { user_id: userId, entry_id: text.min(1).max(300) });
const rebuildStart = command('rebuild.start', {
  user_id: userId,
  projection: text.min(1).max(100),
  /** false: build and compare only. */
  swap: z.boolean(),
});
const rebuildAbort = command('rebuild.abort', { user_id: userId, projection: text.min(1).max(100) });
const verifyStart = command('verify.start', { user_id: userId });

/** `pg_notify` channel that carries the ids of decided commands, notified after commit. */
export const DECIDED_CHANNEL = 'tds_commands_decided';

export const commandsMessage = z.discriminatedUnion('type', [
  userCreate,
  userSetPassword,
  userDisable,
  sessionOpen,
  sessionClose,
  apiKeyCreate,
  apiKeyUpdate,
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
  quarantineRetry,
  quarantineSkip,
  rebuildStart,
  rebuildAbort,
  verifyStart,
]);
export type Command = z.infer<typeof commandsMessage>;
export type CommandType = Command['type'];
/** The command of one type: `CommandOf<'user.create'>`. */
export type CommandOf<T extends CommandType> = Extract<Command, { type: T }>;
