import type { RequestListener } from 'node:http';
import type { Socket } from 'node:net';

/** Of a connection. Few clients send a request before the last one is answered. */
export const MAX_UNANSWERED = 64;

/**
 * Closes a connection that has too many unanswered requests: thousands fit into a few packets, and each is begun as soon as it
 * is read.
 */
export function limitPipelining(handle: RequestListener): RequestListener {
  const unanswered = new WeakMap<Socket, number>();
  const add = (socket: Socket, requests: number): number => {
    const number = (unanswered.get(socket) ?? 0) + requests;
    unanswered.set(socket, number);
    return number;
  };
  return (request, response) => {
    const { socket } = request;
    // The parser still reads the rest of the packet after `destroy`.
    if (socket.destroyed) return;
    if (add(socket, 1) > MAX_UNANSWERED) {
      socket.destroy();
      return;
    }
    response.once('close', () => add(socket, -1));
    handle(request, response);
  };
}
