import type { Server } from 'node:http';
import { WebSocketServer } from 'ws';
import type { WebSocket } from 'ws';
import { z } from 'zod';

import type { SimulatedChain } from './chain.ts';
import { answerRequest, parseRequest } from './http.ts';
import type { Ledger } from './ledger.ts';
import { readParams, rpcErrors } from './protocol.ts';
import { newHead } from './rpc.ts';

const MAX_BYTES = 64 * 1024;
const unsubscribeParams = z.object({ subscription_id: z.string() });

/** Serves `starknet_subscribeNewHeads` and `starknet_unsubscribe` over the server's WebSocket, on any path. */
export function serveSubscriptions(
  server: Server,
  { chain, ledger }: { readonly chain: Pick<SimulatedChain, 'watch'>; readonly ledger: Ledger },
): { readonly close: () => void } {
  const sockets = new WebSocketServer({ server, maxPayload: MAX_BYTES });
  const subscribers = new Map<string, WebSocket>();
  let next = 1;

  sockets.on('connection', (socket) => {
    const own = new Set<string>();
    const run = async ({ method, params }: { method: string; params: unknown }): Promise<unknown> => {
      if (method === 'starknet_subscribeNewHeads') {
        const id = String(next++);
        own.add(id);
        subscribers.set(id, socket);
        return id;
      }
      if (method !== 'starknet_unsubscribe') throw rpcErrors.methodNotFound();
      const { subscription_id: id } = readParams(unsubscribeParams, params);
      if (!own.delete(id)) throw rpcErrors.badSubscription();
      return subscribers.delete(id);
    };
    socket.on('message', (data: Buffer) => {
      answerRequest(parseRequest(data.toString('utf8')), run).then(
        (answer) => socket.send(String(answer)),
        () => socket.terminate(),
      );
    });
    socket.on('error', () => socket.terminate());
    socket.on('close', () => own.forEach((id) => subscribers.delete(id)));
  });
  const unwatch = chain.watch(() => {
    if (subscribers.size === 0) return;
    const result = newHead(ledger);
    for (const [subscription_id, socket] of subscribers) {
      const params = { subscription_id, result };
      socket.send(JSON.stringify({ jsonrpc: '2.0', method: 'starknet_subscriptionNewHeads', params }));
    }
  });
  return {
    close() {
      unwatch();
      for (const socket of sockets.clients) socket.terminate();
      sockets.close();
    },
  };
}
