import { readFileSync } from 'node:fs';

import type { KafkaConfig, SASLOptions } from 'kafkajs';

import { AppError } from '../../schemas/errors.ts';
import { required } from '../config.ts';
import type { Config } from '../config.ts';
import { framedSocket } from './framed-socket.ts';
import './kafkajs-requests.ts';

/** PEM texts, read from their files at every access: certificates are renewed while the process runs. */
interface TlsFiles {
  readonly ca: string | undefined;
  readonly cert: string | undefined;
  readonly key: string | undefined;
}

/** How the brokers are reached. */
export interface KafkaConnection {
  /** As `host:port`. */
  readonly brokers: readonly string[];
  /** TLS; absent: plaintext. */
  readonly ssl?: TlsFiles | undefined;
  readonly sasl?: SASLOptions | undefined;
}

/**
 * The connection that the settings `KAFKA_*` describe.
 *
 * @throws AppError `CONFIG_INVALID` naming the setting that is missing, without effect, or whose file cannot be read
 */
export function kafkaConnection(config: Config): KafkaConnection {
  return { brokers: required(config, 'kafkaBrokers'), ssl: sslOf(config), sasl: saslOf(config) };
}

function sslOf({ kafkaSsl, kafkaSslCa, kafkaSslCert, kafkaSslKey }: Config): KafkaConnection['ssl'] {
  const files = { KAFKA_SSL_CA: kafkaSslCa, KAFKA_SSL_CERT: kafkaSslCert, KAFKA_SSL_KEY: kafkaSslKey };
  if (!kafkaSsl) {
    const [unused] = Object.entries(files).find(([, path]) => path !== null) ?? [];
    if (unused !== undefined) throw invalid(`${unused} has no effect: set KAFKA_SSL=true`);
    return undefined;
  }
  if ((kafkaSslCert === null) !== (kafkaSslKey === null))
    throw invalid('KAFKA_SSL_CERT and KAFKA_SSL_KEY must be set together');
  const pem = (setting: keyof typeof files): string | undefined => {
    const path = files[setting];
    if (path === null) return undefined;
    try {
      return readFileSync(path, 'utf8');
    } catch (cause) {
      throw invalid(`${setting}: cannot read ${path}`, cause);
    }
  };
  const ssl = {
    get ca() {
      return pem('KAFKA_SSL_CA');
    },
    get cert() {
      return pem('KAFKA_SSL_CERT');
    },
    get key() {
      return pem('KAFKA_SSL_KEY');
    },
  };
  // A file that cannot be read is reported at the start.
  Object.values(ssl);
  return ssl;
}

function saslOf({ kafkaSaslMechanism: mechanism, ...config }: Config): SASLOptions | undefined {
  const { kafkaSaslUsername: username, kafkaSaslPassword: password } = config;
  if (mechanism === null) {
    if (username === null && password === null) return undefined;
    throw invalid('KAFKA_SASL_USERNAME and KAFKA_SASL_PASSWORD have no effect: set KAFKA_SASL_MECHANISM');
  }
  if (username === null || password === null)
    throw invalid('KAFKA_SASL_MECHANISM needs KAFKA_SASL_USERNAME and KAFKA_SASL_PASSWORD');
  return { mechanism, username, password };
}

/** Longest time until a client notices moved leaders where the broker that it asks is frozen or cut off. */
export const METADATA_MAX_AGE_MS = 30_000;

/** The options of kafkajs that concern a single connection. */
export function connectionOptions({ brokers, ssl, sasl }: KafkaConnection) {
  return {
    brokers: [...brokers],
    ...(ssl === undefined ? {} : { ssl }),
    ...(sasl === undefined ? {} : { sasl }),
    connectionTimeout: 5000,
    requestTimeout: 30_000,
    socketFactory: framedSocket,
  } satisfies Partial<KafkaConfig>;
}

/**
 * The error of a failed request: `STORE_UNAVAILABLE`, which is retried, or `CONFIG_INVALID` where only other settings or
 * certificates help.
 */
export function kafkaError(message: string, cause: unknown): AppError {
  for (let error: unknown = cause; error instanceof Error; error = error.cause) {
    if (error instanceof AppError) return error;
    const refusal = refusalText(error);
    if (refusal !== null) return invalid(refusal, cause);
  }
  return new AppError('STORE_UNAVAILABLE', message, { retryable: true, cause });
}

/** Codes of OpenSSL's verification and of Node's check of the host name. */
const CERTIFICATE_ERRORS = /CERT|^UNABLE_TO_/;
/** Codes of the alerts with which a broker ends the handshake. */
const CERTIFICATE_ALERTS = /ALERT.*CERTIFICATE/;

/** Why broker and client do not accept each other; null for any other error. */
function refusalText(error: Error): string | null {
  const { name, message } = error;
  const code = 'code' in error ? String(error.code) : '';
  if (name === 'KafkaJSSASLAuthenticationError')
    return `Kafka rejected the log-in (${message}): check KAFKA_SASL_MECHANISM, KAFKA_SASL_USERNAME and KAFKA_SASL_PASSWORD`;
  if (code === 'CERT_HAS_EXPIRED')
    return 'The certificate of Kafka has expired: renew it on the brokers, or the one of its authority in KAFKA_SSL_CA';
  if (CERTIFICATE_ALERTS.test(code))
    return `Kafka rejected the client certificate (${code}): check KAFKA_SSL_CERT and KAFKA_SSL_KEY`;
  if (CERTIFICATE_ERRORS.test(code))
    return `The certificate of Kafka is not trusted (${message}): check KAFKA_SSL_CA`;
  return null;
}

function invalid(message: string, cause?: unknown): AppError {
  return new AppError('CONFIG_INVALID', message, { cause });
}
