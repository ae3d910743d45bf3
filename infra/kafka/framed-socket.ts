import { Socket } from 'node:net';

/** A frame begins with its length, which does not count itself. */
const LENGTH_BYTES = 4;
const KEEP_ALIVE_MS = 60_000;

/**
 * A socket whose `data` is always some whole frames of Kafka's protocol. kafkajs (2.2.4) keeps the beginning of an answer
 * that was cut off when it connects again, and takes what the new connection says for the rest of it: it throws outside
 * of any promise, or waits for ever. A frame that is not whole dies with its socket here.
 */
class FramedSocket extends Socket {
  #waiting: Buffer[] = [];
  #held = 0;
  /** Of what is held, until when nothing is whole. */
  #wanted = LENGTH_BYTES;

  override emit(event: string | symbol, ...args: unknown[]): boolean {
    const [chunk] = args;
    if (event !== 'data' || !Buffer.isBuffer(chunk)) return super.emit(event, ...args);
    this.#waiting.push(chunk);
    this.#held += chunk.length;
    if (this.#held < this.#wanted) return true;
    const held = this.#waiting.length === 1 ? chunk : Buffer.concat(this.#waiting);
    let whole = 0;
    this.#wanted = LENGTH_BYTES;
    while (held.length - whole >= LENGTH_BYTES) {
      const size = LENGTH_BYTES + held.readInt32BE(whole);
      if (held.length - whole < size) {
        this.#wanted = size;
        break;
      }
      whole += size;
    }
    const rest = held.subarray(whole);
    this.#waiting = rest.length === 0 ? [] : [rest];
    this.#held = rest.length;
    return whole === 0 || super.emit('data', held.subarray(0, whole));
  }
}

/** For `socketFactory` of kafkajs. */
export function framedSocket({
  host,
  port,
  onConnect,
}: {
  host: string;
  port: number;
  onConnect: () => void;
}): Socket {
  const socket = new FramedSocket();
  socket.setKeepAlive(true, KEEP_ALIVE_MS);
  return socket.connect({ host, port }, onConnect);
}
