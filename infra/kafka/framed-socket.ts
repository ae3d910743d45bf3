import { isIP, connect as connectPlain } from 'node:net';
import type { Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import type { ConnectionOptions } from 'node:tls';

/** A frame begins with its length, excluding this field. */
const LENGTH_BYTES = 4;
const KEEP_ALIVE_MS = 60_000;

/** A `socketFactory` for kafkajs, of sockets that emit whole frames. */
export function framedSocket({
  host,
  port,
  ssl,
  onConnect,
}: {
  readonly host: string;
  readonly port: number;
  readonly ssl?: ConnectionOptions | null;
  readonly onConnect: () => void;
}): Socket {
  const socket = ssl
    ? // A name for SNI must not be an address.
      connectTls({ ...(isIP(host) === 0 ? { servername: host } : {}), ...ssl, host, port }, onConnect)
    : connectPlain({ host, port }, onConnect);
  socket.setKeepAlive(true, KEEP_ALIVE_MS);
  return emitFrames(socket);
}

/**
 * Makes a socket emit `data` in whole frames of Kafka's protocol. kafkajs (2.2.4) keeps the beginning of a response that
 * was cut off when it reconnects, and reads the next response as the rest of it: it then throws outside of any promise, or
 * waits forever. Here an incomplete frame is dropped with its socket.
 */
function emitFrames(socket: Socket): Socket {
  const emit = socket.emit.bind(socket) as (event: string | symbol, ...args: unknown[]) => boolean;
  let chunks: Buffer[] = [];
  let bufferedBytes = 0;
  /** Buffered bytes at which the first frame is complete. */
  let neededBytes = LENGTH_BYTES;

  socket.emit = (event: string | symbol, ...args: unknown[]): boolean => {
    const [chunk] = args;
    if (event !== 'data' || !Buffer.isBuffer(chunk)) return emit(event, ...args);
    chunks.push(chunk);
    bufferedBytes += chunk.length;
    if (bufferedBytes < neededBytes) return true;
    const buffered = chunks.length === 1 ? chunk : Buffer.concat(chunks);
    let wholeBytes = 0;
    neededBytes = LENGTH_BYTES;
    while (buffered.length - wholeBytes >= LENGTH_BYTES) {
      const size = LENGTH_BYTES + buffered.readInt32BE(wholeBytes);
      if (buffered.length - wholeBytes < size) {
        neededBytes = size;
        break;
      }
      wholeBytes += size;
    }
    const rest = buffered.subarray(wholeBytes);
    chunks = rest.length === 0 ? [] : [rest];
    bufferedBytes = rest.length;
    return wholeBytes === 0 || emit('data', buffered.subarray(0, wholeBytes));
  };
  return socket;
}
