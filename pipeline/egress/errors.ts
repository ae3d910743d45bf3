import { errorCode } from '../../infra/error-code.ts';

/**
 * Why a call failed.
 *
 * - `invalid url`: not a URL, another scheme, credentials in it, or http to the internet
 * - `blocked address`: the host has an address that is neither public nor allowed
 * - `dns`: the host does not resolve
 * - `connection`: refused, unreachable, or closed before the end of the answer
 * - `tls`: failed handshake or invalid certificate
 * - `timeout`: no complete answer in time
 * - `invalid answer`: not HTTP, or its headers are too large
 * - `cancelled`: by the caller's signal, or because the client closed
 */
export type EgressReason =
  | 'invalid url'
  | 'blocked address'
  | 'dns'
  | 'connection'
  | 'tls'
  | 'timeout'
  | 'invalid answer'
  | 'cancelled';

/** The message may be shown to the owner of the URL, so it contains no internal address. */
export class EgressError extends Error {
  readonly reason: EgressReason;

  constructor(reason: EgressReason, message: string = reason, options?: ErrorOptions) {
    super(message, options);
    this.name = 'EgressError';
    this.reason = reason;
  }
}

/** Formats an error's code as ` (ECONNREFUSED)`; '' without one. */
export function codeOf(error: unknown): string {
  const code = errorCode(error);
  return code === null ? '' : ` (${code})`;
}
