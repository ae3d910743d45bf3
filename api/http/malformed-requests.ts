import { randomUUID } from 'node:crypto';
import { STATUS_CODES, maxHeaderSize } from 'node:http';
import type { Server } from 'node:http';

import { API_VERSION } from './openapi.ts';

/** Answers by the error code of Node's HTTP parser. */
const answers: Readonly<Record<string, readonly [status: number, code: string, detail: string]>> = {
  HPE_HEADER_OVERFLOW: [
    431,
    'headers_too_large',
    `The request's URL and headers exceed ${maxHeaderSize} bytes.`,
  ],
  ERR_HTTP_REQUEST_TIMEOUT: [408, 'request_timeout', 'The request did not arrive in time.'],
};
const malformed = [400, 'bad_request', 'The request is not valid HTTP.'] as const;

/** Delay before the socket closes: closing while the client still sends would reset the connection before it reads the answer. */
const LINGER_MS = 1000;

/** Answers requests that are not valid HTTP with the same error body as every other error. */
export function answerMalformedRequests(server: Server): void {
  const answered = new WeakSet();
  server.on('clientError', (error: NodeJS.ErrnoException, socket) => {
    // The event repeats for every further packet of the request.
    if (answered.has(socket)) return;
    answered.add(socket);
    if (error.code === 'ECONNRESET' || !socket.writable) {
      socket.destroy();
      return;
    }
    const [status, code, detail] = answers[error.code ?? ''] ?? malformed;
    const requestId = randomUUID();
    const body = JSON.stringify({ detail, code, status, request_id: requestId });
    const head = [
      `HTTP/1.1 ${status} ${STATUS_CODES[status]}`,
      'Connection: close',
      'Cache-Control: no-store',
      'Access-Control-Allow-Origin: *',
      `X-Request-Id: ${requestId}`,
      `X-API-Version: ${API_VERSION}`,
      'Content-Type: application/json; charset=utf-8',
      `Content-Length: ${Buffer.byteLength(body)}`,
    ];
    socket.end(`${head.join('\r\n')}\r\n\r\n${body}`);
    setTimeout(() => socket.destroy(), LINGER_MS).unref();
  });
}
