import { connect, createServer } from 'node:net';
import type { AddressInfo, Socket } from 'node:net';

/**
 * A fault-injecting TCP proxy in front of one server. It knows no protocol: it sees requests (bytes of the client) and
 * answers (bytes of the server), and acts where they contain a text.
 */
export interface FaultProxy {
  readonly host: string;
  readonly port: number;
  /** Sets the faults of all connections from now on; `weather({})` ends them. */
  weather(weather: Weather): void;
  /** Sets a one-time trap for the next request that matches. */
  trap(trap: Trap): Sprung;
  /** Cuts all open connections. */
  reset(): void;
  /** Number of open connections. */
  connections(): number;
  close(): Promise<void>;
}

export interface Weather {
  /** Delays every chunk, in both directions. */
  readonly latencyMs?: number;
  /** Connections are accepted, but no data passes. */
  readonly halfOpen?: boolean;
  /** Connections are cut as soon as they are opened. */
  readonly refuse?: boolean;
  /** Each new connection is cut after this many bytes of answers. */
  readonly cutAfterBytes?: number;
}

export interface Trap {
  /**
   * Matched against the text of a request (latin1) as it arrives, so `^` is its beginning. A request begins after the
   * server's last answer; with Kafka, whose clients pipeline requests, at its frame.
   */
  readonly request: RegExp;
  /** Springs at the nth match; default 1. */
  readonly nth?: number;
  /**
   * `hold`: the matching bytes and all that follow on the connection are kept back until released or cut, so the server
   * never has the whole request. `lose-answer`: the request passes, and the connection is cut instead of forwarding the
   * answer, so the work is done but the client does not know. `reset`: the connection is cut before the request.
   */
  readonly act: 'hold' | 'lose-answer' | 'reset';
  /** Called synchronously, before anything else can happen on any connection. */
  readonly onSprung?: () => void;
}

export interface Sprung {
  /** Resolves when the trap has sprung (`lose-answer`: when the answer is lost). */
  readonly sprung: Promise<void>;
  hasSprung(): boolean;
  /** Forwards the held bytes. */
  release(): void;
}

export interface ProxyOptions {
  readonly host: string;
  readonly port: number;
  /**
   * Requests and answers are length-prefixed frames, answered in order. The broker's address in its metadata is replaced by
   * the proxy's; both are host and 32-bit port, so the length stays the same.
   */
  readonly kafka?: boolean;
}

/** What a request's text may be searched for. */
const WINDOW = 128 * 1024;
/** Kafka requests whose answers contain broker addresses: Metadata and FindCoordinator. */
const NAMING = new Set(['\0\x03', '\0\x0a']);

interface Armed extends Trap {
  left: number;
  spring(): void;
  held: (() => void) | null;
  open: boolean;
}

export async function startProxy({ host, port, kafka = false }: ProxyOptions): Promise<FaultProxy> {
  let current: Weather = {};
  let traps: Armed[] = [];
  const cuts = new Set<() => void>();

  const server = createServer({ allowHalfOpen: true, noDelay: true }, (client) => {
    if (current.refuse === true) return client.resetAndDestroy();
    const upstream = connect({ host, port, noDelay: true, allowHalfOpen: true });
    const { cutAfterBytes } = current;
    const exchange = kafka
      ? kafkaExchange(address(host, port), () => address(host, portOf()))
      : plainExchange();
    let answered = 0;
    let losing: { trap: Armed; number: number } | null = null;
    let holding = false;
    const cut = (): void => {
      cuts.delete(cut);
      if (!client.destroyed) client.resetAndDestroy();
      upstream.destroy();
    };
    cuts.add(cut);

    const sprungBy = (chunk: Buffer): { trap: Armed; number: number } | undefined => {
      for (const { text, number } of exchange.asked(chunk)) {
        const trap = traps.find(({ request }) => request.test(text));
        if (trap === undefined) continue;
        exchange.forget();
        trap.left -= 1;
        if (trap.left > 0) continue;
        traps = traps.filter((one) => one !== trap);
        return { trap, number };
      }
      return undefined;
    };
    const requests = ordered(client, upstream, async (chunk, forward) => {
      const sprung = sprungBy(chunk);
      if (sprung !== undefined) {
        const { trap } = sprung;
        trap.onSprung?.();
        if (trap.act === 'reset') {
          trap.spring();
          return cut();
        }
        if (trap.act === 'lose-answer') losing = sprung;
        if (trap.act === 'hold') {
          const released = new Promise<void>((resolve) => (trap.open ? resolve() : (trap.held = resolve)));
          trap.spring();
          holding = true;
          await released;
          holding = false;
        }
      }
      await delay();
      forward(chunk);
    });
    const answers = ordered(upstream, client, async (chunk, forward) => {
      const { answers: begun, passing } = exchange.answered(chunk);
      if (losing !== null && begun >= losing.number) {
        const { trap } = losing;
        cut();
        return trap.spring();
      }
      await delay();
      const limit = cutAfterBytes ?? Infinity;
      for (const part of passing) {
        forward(part.subarray(0, Math.max(0, limit - answered)));
        answered += part.length;
      }
      if (answered <= limit) return;
      client.destroySoon();
      upstream.destroy();
    });
    for (const socket of [client, upstream]) socket.on('error', cut);
    // Bytes held for a closed client are dropped.
    client.on('end', () => {
      if (holding || current.halfOpen === true) cut();
      else void requests().then(() => upstream.end());
    });
    upstream.on('end', () => void answers().then(() => client.end()));
    client.on('close', () => cuts.delete(cut));
  });

  const delay = async (): Promise<void> => {
    const { latencyMs = 0 } = current;
    if (latencyMs > 0) await new Promise((resolve) => setTimeout(resolve, latencyMs));
    // Held until the fault ends or the connection is cut.
    while (current.halfOpen === true) await new Promise((resolve) => setTimeout(resolve, 50));
  };
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const portOf = (): number => (server.address() as AddressInfo).port;

  return {
    host,
    port: portOf(),
    weather(weather) {
      current = weather;
    },
    trap({ nth = 1, ...trap }) {
      const done = Promise.withResolvers<void>();
      let sprung = false;
      const armed: Armed = {
        ...trap,
        left: nth,
        held: null,
        open: false,
        spring() {
          sprung = true;
          done.resolve();
        },
      };
      traps.push(armed);
      return {
        sprung: done.promise,
        hasSprung: () => sprung,
        release() {
          traps = traps.filter((one) => one !== armed);
          armed.open = true;
          armed.held?.();
        },
      };
    },
    reset: () => cuts.forEach((cut) => cut()),
    connections: () => cuts.size,
    async close() {
      current = {};
      const closed = new Promise((resolve) => server.close(resolve));
      for (const cut of cuts) cut();
      await closed;
    },
  };
}

/** Handles chunks in order, pausing the stream meanwhile. Resolves when all are handled. */
function ordered(
  from: Socket,
  to: Socket,
  handle: (chunk: Buffer, forward: (part: Buffer) => void) => Promise<void>,
): () => Promise<void> {
  let tail = Promise.resolve();
  const forward = (part: Buffer): void => {
    if (to.destroyed || to.write(part)) return;
    from.pause();
    to.once('drain', () => from.resume());
  };
  from.on('data', (chunk: Buffer) => {
    tail = tail.then(() => handle(chunk, forward));
  });
  return () => tail;
}

function address(host: string, port: number): Buffer {
  const number = Buffer.alloc(4);
  number.writeInt32BE(port);
  return Buffer.concat([Buffer.from(host), number]);
}

/** Tracks the requests and answers of one connection, numbered from 1. */
interface Exchange {
  /** The requests that a client chunk belongs to, each with its text so far. */
  asked(chunk: Buffer): { text: string; number: number }[];
  /** Forgets the text collected so far. */
  forget(): void;
  /** Number of answers started up to this server chunk, and the bytes to forward now. */
  answered(chunk: Buffer): { answers: number; passing: readonly Buffer[] };
}

/** For protocols without pipelining: any answer answers all bytes sent before. */
function plainExchange(): Exchange {
  let text = '';
  let answers = 0;
  return {
    asked(chunk) {
      text = (text + chunk.toString('latin1')).slice(-WINDOW - chunk.length);
      return [{ text, number: answers + 1 }];
    },
    forget: () => (text = ''),
    answered(chunk) {
      text = '';
      answers += 1;
      return { answers, passing: [chunk] };
    },
  };
}

/** For Kafka: one answer per request, in order, with broker addresses replaced. */
function kafkaExchange(real: Buffer, shown: () => Buffer): Exchange {
  const [requests, answers] = [frames(), frames()];
  let text = '';
  let asked = 0;
  let answered = 0;
  /** First six bytes (length and API key) of each unanswered request. */
  const heads: string[] = [];
  let naming: Buffer[] | null = null;

  const shownTo = (frame: Buffer): Buffer => {
    for (let at = frame.indexOf(real); at >= 0; at = frame.indexOf(real, at + 1)) shown().copy(frame, at);
    return frame;
  };
  return {
    asked: (chunk) =>
      requests(chunk).map(({ begins, bytes }) => {
        if (begins) {
          [text, asked] = ['', asked + 1];
          heads.push('');
        }
        const read = bytes.toString('latin1', 0, WINDOW);
        if (text.length < WINDOW) text += read;
        heads.push(((heads.pop() ?? '') + read).slice(0, 6));
        return { text, number: asked };
      }),
    forget: () => (text = ''),
    answered(chunk) {
      const passing = answers(chunk).flatMap(({ begins, ends, bytes }) => {
        if (begins) {
          answered += 1;
          naming = NAMING.has((heads.shift() ?? '').slice(4)) ? [] : null;
        }
        if (naming === null) return [bytes];
        naming.push(bytes);
        return ends ? [shownTo(Buffer.concat(naming))] : [];
      });
      return { answers: answered, passing };
    },
  };
}

/** The part of one frame that a chunk contains. */
interface Piece {
  readonly begins: boolean;
  readonly ends: boolean;
  readonly bytes: Buffer;
}

/** Splits a stream of length-prefixed frames (32 bits) into parts that each belong to one frame. */
function frames(): (chunk: Buffer) => Piece[] {
  let waiting = Buffer.alloc(0);
  let left = 0;
  return (chunk) => {
    const pieces: Piece[] = [];
    waiting = Buffer.concat([waiting, chunk]);
    while (waiting.length > 0) {
      const begins = left === 0;
      if (begins) {
        if (waiting.length < 4) break;
        left = 4 + waiting.readInt32BE(0);
      }
      const bytes = waiting.subarray(0, left);
      waiting = waiting.subarray(bytes.length);
      left -= bytes.length;
      pieces.push({ begins, ends: left === 0, bytes });
    }
    return pieces;
  };
}
