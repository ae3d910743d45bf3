import { connect, createServer } from 'node:net';
import type { AddressInfo, Socket } from 'node:net';

/**
 * A TCP proxy in front of one server, through which things go wrong on purpose. It knows no protocol: it sees requests
 * (bytes of the client) and answers (bytes of the server) go by, and acts where a text appears in them.
 */
export interface FaultProxy {
  readonly host: string;
  readonly port: number;
  /** What happens to every connection from now on; `weather({})` is fair again. */
  weather(weather: Weather): void;
  /** Sets a trap for the next bytes that match. It springs once. */
  trap(trap: Trap): Sprung;
  /** Cuts every connection that is open. */
  reset(): void;
  /** How many connections are open. */
  connections(): number;
  close(): Promise<void>;
}

export interface Weather {
  /** Delays every chunk, each way. */
  readonly latencyMs?: number;
  /** Connections are accepted, and nothing goes through any more. */
  readonly halfOpen?: boolean;
  /** Connections are cut as soon as they are made. */
  readonly refuse?: boolean;
  /** Each new connection is cut after so many bytes of answers. */
  readonly cutAfterBytes?: number;
}

export interface Trap {
  /**
   * Matched against what the client has sent since the server last spoke, as latin1; so `^` is the beginning of a request.
   */
  readonly request: RegExp;
  /** Springs at the so-many-th match; default 1. */
  readonly nth?: number;
  /**
   * `hold`: the matching bytes stay here, and all that follow on this connection, until it is released or cut; the server
   * never has the whole request. `lose-answer`: the request goes through; when the server answers, the connection is cut
   * instead, so what was asked for was done and the client does not know. `reset`: the connection is cut before it.
   */
  readonly act: 'hold' | 'lose-answer' | 'reset';
  /** Called at once, before anything else can happen on any connection. */
  readonly onSprung?: () => void;
}

export interface Sprung {
  /** Resolves when it has sprung (`lose-answer`: when the answer is lost). */
  readonly sprung: Promise<void>;
  hasSprung(): boolean;
  /** Lets go of what is held. */
  release(): void;
}

export interface ProxyOptions {
  readonly host: string;
  readonly port: number;
  /**
   * The server tells its clients its own address (a Kafka broker in its metadata): put the proxy's in its place. Both are
   * written as host and 32-bit port, so the length stays the same.
   */
  readonly advertised?: boolean;
}

/** What a request's text may be searched for. */
const WINDOW = 128 * 1024;
/** Answers that name an address are small; larger frames are data and go by unread. */
const LARGEST_METADATA = 64 * 1024;

interface Armed extends Trap {
  left: number;
  spring(): void;
  held: (() => void) | null;
  open: boolean;
}

export async function startProxy({ host, port, advertised = false }: ProxyOptions): Promise<FaultProxy> {
  let current: Weather = {};
  let traps: Armed[] = [];
  const cuts = new Set<() => void>();

  const server = createServer({ allowHalfOpen: true, noDelay: true }, (client) => {
    if (current.refuse === true) return client.resetAndDestroy();
    const upstream = connect({ host, port, noDelay: true, allowHalfOpen: true });
    const { cutAfterBytes } = current;
    let asked = '';
    let answered = 0;
    let losing: Armed | null = null;
    let holding = false;
    const cut = (): void => {
      cuts.delete(cut);
      if (!client.destroyed) client.resetAndDestroy();
      upstream.destroy();
    };
    cuts.add(cut);

    const sprungBy = (chunk: Buffer): Armed | undefined => {
      if (traps.length === 0) return undefined;
      asked = (asked + chunk.toString('latin1')).slice(-WINDOW - chunk.length);
      const trap = traps.find(({ request }) => request.test(asked));
      if (trap === undefined) return undefined;
      asked = '';
      trap.left -= 1;
      if (trap.left > 0) return undefined;
      traps = traps.filter((one) => one !== trap);
      return trap;
    };
    const requests = ordered(client, upstream, async (chunk, forward) => {
      const trap = sprungBy(chunk);
      if (trap !== undefined) {
        trap.onSprung?.();
        if (trap.act === 'reset') {
          trap.spring();
          return cut();
        }
        if (trap.act === 'lose-answer') losing = trap;
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
    const rewrite = advertised ? frames(addressOf(host, port), () => addressOf(host, portOf())) : null;
    const answers = ordered(upstream, client, async (chunk, forward) => {
      asked = '';
      if (losing !== null) {
        const lost = losing;
        cut();
        return lost.spring();
      }
      await delay();
      answered += chunk.length;
      const limit = cutAfterBytes ?? Infinity;
      const passed = answered > limit ? chunk.subarray(0, chunk.length - (answered - limit)) : chunk;
      for (const part of rewrite === null ? [passed] : rewrite(passed)) forward(part);
      if (answered <= limit) return;
      client.destroySoon();
      upstream.destroy();
    });
    for (const socket of [client, upstream]) socket.on('error', cut);
    // A client that is gone takes what is held with it.
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
    // Held until the weather is fair again, or the connection is cut.
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

/** Handles chunks one after the other, reading no more meanwhile. Gives a promise of the moment when all is handled. */
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

function addressOf(host: string, port: number): Buffer {
  const number = Buffer.alloc(4);
  number.writeInt32BE(port);
  return Buffer.concat([Buffer.from(host), number]);
}

/** Cuts a stream of length-prefixed frames (Kafka's) into whole ones, and replaces one address by another in small ones. */
function frames(address: Buffer, replacement: () => Buffer): (chunk: Buffer) => Buffer[] {
  let waiting = Buffer.alloc(0);
  /** Bytes of a large frame that are still to go by. */
  let passing = 0;
  return (chunk) => {
    const out: Buffer[] = [];
    waiting = Buffer.concat([waiting, chunk]);
    while (waiting.length > 0) {
      if (passing > 0) {
        const part = waiting.subarray(0, passing);
        out.push(part);
        passing -= part.length;
        waiting = waiting.subarray(part.length);
        continue;
      }
      if (waiting.length < 4) break;
      const size = 4 + waiting.readInt32BE(0);
      if (size > LARGEST_METADATA) {
        passing = size;
        continue;
      }
      if (waiting.length < size) break;
      const frame = Buffer.from(waiting.subarray(0, size));
      for (let at = frame.indexOf(address); at >= 0; at = frame.indexOf(address, at + 1)) {
        replacement().copy(frame, at);
      }
      out.push(frame);
      waiting = waiting.subarray(size);
    }
    return out;
  };
}
