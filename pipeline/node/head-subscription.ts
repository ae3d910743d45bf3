import { WebSocket } from 'ws';
import { z } from 'zod';

import { jsonOf } from '../../infra/json.ts';
import type { Logger } from '../../infra/log.ts';
import { backoffMs } from '../../infra/retry.ts';
import { RpcError } from './errors.ts';
import { createMask } from './excerpt.ts';

/** A node that does not answer, or says no, is asked again at this pace. */
const RETRY = { baseMs: 500, maxMs: 60_000 };
const CONFIRM_MS = 10_000;
/** A header has some kilobytes. */
const MAX_BYTES = 1_000_000;
/** `starknet_subscriptionReorg` comes on any subscription. */
const ANNOUNCEMENTS = new Set(['starknet_subscriptionNewHeads', 'starknet_subscriptionReorg']);

export interface HeadSubscription {
  /** Whether the node has confirmed the subscription. */
  isLive(): boolean;
  /** Subscribes again: the node did not announce a head that it has. */
  restart(): void;
  close(): void;
}

/** Calls back when the node says that its head has changed. */
export type SubscribeToHeads = (onAnnouncement: () => void) => HeadSubscription;

/**
 * Subscribes to a node's heads over its WebSocket (`starknet_subscribeNewHeads`, JSON-RPC 0.8 and later), again and again
 * until closed. An announcement is a wake-up call and never data: its content is not read, and nodes miss some.
 */
export function headSubscriptions(url: string, log: Logger): SubscribeToHeads {
  const mask = createMask(url);
  return (onAnnouncement) => {
    let socket: WebSocket | null = null;
    let timer: NodeJS.Timeout | undefined;
    let isLive = false;
    let failures = 0;

    const connect = (): void => {
      const opened = new WebSocket(url, { maxPayload: MAX_BYTES });
      socket = opened;
      const lost = (why: string): void => {
        if (socket !== opened) return;
        socket = null;
        opened.terminate();
        clearTimeout(timer);
        if (isLive || failures === 0) log.warn({ why }, 'the node announces no heads; its head is polled');
        isLive = false;
        failures += 1;
        timer = setTimeout(connect, backoffMs(failures, RETRY, Math.random()));
      };
      timer = setTimeout(() => lost(`no answer within ${CONFIRM_MS} ms`), CONFIRM_MS);
      opened.on('open', () => opened.send(JSON.stringify(SUBSCRIBE)));
      opened.on('error', (error) => lost(error.message));
      opened.on('close', () => lost('connection closed'));
      opened.on('message', (data: Buffer) => {
        if (socket !== opened) return;
        const message = jsonOf(data);
        const kind = kindOf(message);
        if (kind === 'refusal') return lost(mask(reasonOf(message)));
        if (kind === 'confirmation') {
          clearTimeout(timer);
          isLive = true;
          failures = 0;
          log.info('the node announces its heads');
        }
        if (kind === 'announcement') onAnnouncement();
      });
    };
    const disconnect = (): void => {
      clearTimeout(timer);
      const old = socket;
      socket = null;
      isLive = false;
      old?.terminate();
    };
    connect();
    return {
      isLive: () => isLive,
      restart() {
        disconnect();
        connect();
      },
      close: disconnect,
    };
  };
}

const SUBSCRIBE = { jsonrpc: '2.0', id: 1, method: 'starknet_subscribeNewHeads', params: {} };

function kindOf(message: unknown): 'confirmation' | 'refusal' | 'announcement' | 'other' {
  if (typeof message !== 'object' || message === null) return 'other';
  if ('method' in message) return ANNOUNCEMENTS.has(String(message.method)) ? 'announcement' : 'other';
  // An error without an id is that of the only request.
  if ('error' in message) return 'refusal';
  return 'id' in message && message.id === SUBSCRIBE.id && 'result' in message ? 'confirmation' : 'other';
}

const refusal = z.object({
  error: z.object({ code: z.number(), message: z.string().catch(''), data: z.unknown().optional() }),
});

function reasonOf(message: unknown): string {
  const { data: found } = refusal.safeParse(message);
  if (found === undefined) return 'subscription refused';
  const { code, message: text, data } = found.error;
  return `subscription refused: ${new RpcError(SUBSCRIBE.method, code, text, data).message}`;
}
