import { errorCode } from './error-code.ts';

/** Node's error codes of a peer that cannot be reached, or of a connection that broke: another attempt can succeed. */
const NETWORK_ERROR_CODES: ReadonlySet<string> = new Set([
  'EADDRNOTAVAIL', // no free local port
  'EAI_AGAIN',
  'ECONNABORTED',
  'ECONNREFUSED',
  'ECONNRESET',
  'EHOSTDOWN',
  'EHOSTUNREACH',
  'ENETDOWN',
  'ENETUNREACH',
  'ENOTFOUND',
  'EPIPE',
  'ERR_STREAM_PREMATURE_CLOSE',
  'ETIMEDOUT',
  'UND_ERR_BODY_TIMEOUT',
  'UND_ERR_CONNECT_TIMEOUT',
  'UND_ERR_HEADERS_TIMEOUT',
  'UND_ERR_SOCKET',
]);

/** True for a failure of the network, recognised by its code alone. */
export function isNetworkError(error: unknown): boolean {
  const code = errorCode(error);
  return code !== null && NETWORK_ERROR_CODES.has(code);
}

/** Of class `Error` itself and without a code: how drivers report a failure that they did not foresee. */
export function isBareError(error: unknown): boolean {
  return (
    error instanceof Error && Object.getPrototypeOf(error) === Error.prototype && errorCode(error) === null
  );
}
