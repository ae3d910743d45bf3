import { Socket } from 'node:net';

/** A frame begins with its length, excluding this field. */
const LENGTH_BYTES = 4;
const KEEP_ALIVE_MS = 60_000;

/**
 * A socket that emits `data` in whole frames of Kafka's protocol. kafkajs (2.2.4) keeps the beginning of a response that
 * was cut off when it reconnects, and reads the next response as the rest of it: it then throws outside of any promise, or
 * waits forever. Here an incomplete frame is dropped with its socket.
 */
class FramedSocket extends Socket {
  #chunks: Buffer[] = [];
  #bufferedBytes = 0;
  /** Buffered bytes at which the first frame is complete. */
  #neededBytes = LENGTH_BYTES;

  override emit(event: string | symbol, ...args: unknown[]): boolean {
    const [chunk] = args;
    if (event !== 'data' || !Buffer.isBuffer(chunk)) return super.emit(event, ...args);
    this.#chunks.push(chunk);
    this.#bufferedBytes += chunk.length;
    if (this.#bufferedBytes < this.#neededBytes) return true;
    const buffered = this.#chunks.length === 1 ? chunk : Buffer.concat(this.#chunks);
    let wholeBytes = 0;
    this.#neededBytes = LENGTH_BYTES;
    while (buffered.length - wholeBytes >= LENGTH_BYTES) {
      const size = LENGTH_BYTES + buffered.readInt32BE(wholeBytes);
      if (buffered.length - wholeBytes < size) {
        this.#neededBytes = size;
        break;
      }
      wholeBytes += size;
    }
    const rest = buffered.subarray(wholeBytes);
    this.#chunks = rest.length === 0 ? [] : [rest];
    this.#bufferedBytes = rest.length;
    return wholeBytes === 0 || super.emit('data', buffered.subarray(0, wholeBytes));
  }
}

/** A `socketFactory` for kafkajs. */
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
