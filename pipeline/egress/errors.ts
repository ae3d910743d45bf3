/**
 * Why a call came to nothing.
 *
 * - `invalid url`: it is none, or one that is not called: another scheme, credentials in it, http to the internet
 * - `blocked address`: the host has an address that is not public, and not allowed
 * - `dns`: the host does not resolve
 * - `connection`: refused, not reachable, or closed before the answer was whole
 * - `tls`: no secure connection, or a certificate that is not the host's
 * - `timeout`: the time for the whole answer was over
 * - `invalid answer`: not HTTP, or its headers are too large
 * - `given up`: the caller's signal, or the end of the process
 */
export type EgressReason =
  | 'invalid url'
  | 'blocked address'
  | 'dns'
  | 'connection'
  | 'tls'
  | 'timeout'
  | 'invalid answer'
  | 'given up';

/** The message is short and may be shown to whoever gave the URL: it tells nothing of the network in here. */
export class EgressError extends Error {
  readonly reason: EgressReason;

  constructor(reason: EgressReason, message: string = reason, options?: ErrorOptions) {
    super(message, options);
    this.name = 'EgressError';
    this.reason = reason;
  }
}

/** ` (ECONNREFUSED)`, to look it up by; nothing where an error has no code. */
export function codeOf(error: unknown): string {
  const code = error instanceof Error && 'code' in error ? error.code : undefined;
  return typeof code === 'string' ? ` (${code})` : '';
}
