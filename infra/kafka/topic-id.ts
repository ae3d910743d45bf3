import { connect } from 'node:net';

import { AppError } from '../../schemas/errors.ts';

/**
 * The id of a topic (KIP-516), which changes when the topic is deleted and created again, so that a checkpoint of the old
 * log is recognized. Sends a Metadata request v12 because the versions that kafkajs speaks lack the id.
 *
 * @returns the id as 32 hex digits
 */
export async function fetchTopicId(broker: string, topic: string, timeoutMs = 5000): Promise<string> {
  const response = await exchange(broker, metadataRequest(topic), timeoutMs);
  return readTopicId(response, topic);
}

/** Metadata request v12: header v2, then topics [{topic_id, name}], allow_auto_topic_creation, include_operations. */
function metadataRequest(topic: string): Buffer {
  const clientId = Buffer.from('tds');
  const name = Buffer.from(topic);
  if (name.length > 126) throw new AppError('INVALID', `Topic name longer than 126 characters: ${topic}`);
  const header = Buffer.concat([
    int16(3),
    int16(12),
    int32(1),
    int16(clientId.length),
    clientId,
    Buffer.from([0]),
  ]);
  const body = Buffer.concat([
    Buffer.from([2]), // compact array of one topic
    Buffer.alloc(16), // no id: look up by name
    Buffer.from([name.length + 1]),
    name,
    Buffer.from([0, 0, 0, 0]), // topic tags, no auto creation, no operations, tags
  ]);
  return Buffer.concat([int32(header.length + body.length), header, body]);
}

function readTopicId(response: Buffer, topic: string): string {
  const reader = new Reader(response);
  reader.skip(4); // correlation id
  reader.tags();
  reader.skip(4); // throttle time
  for (let brokers = reader.uvarint() - 1; brokers > 0; brokers -= 1) {
    reader.skip(4); // node id
    reader.compactString();
    reader.skip(4); // port
    reader.compactString(); // rack
    reader.tags();
  }
  reader.compactString(); // cluster id
  reader.skip(4); // controller id
  if (reader.uvarint() !== 2)
    throw new AppError('NOT_FOUND', `No metadata of topic ${topic} in the broker's response`);
  const errorCode = reader.int16();
  reader.compactString(); // name
  const id = reader.bytes(16).toString('hex');
  if (errorCode !== 0)
    throw new AppError('NOT_FOUND', `Metadata of topic ${topic}: Kafka error ${errorCode}`, {
      retryable: true,
    });
  return id;
}

class Reader {
  readonly #buffer: Buffer;
  #offset = 0;

  constructor(buffer: Buffer) {
    this.#buffer = buffer;
  }

  skip(count: number): void {
    this.#offset += count;
  }

  int16(): number {
    this.#offset += 2;
    return this.#buffer.readInt16BE(this.#offset - 2);
  }

  bytes(count: number): Buffer {
    this.#offset += count;
    return this.#buffer.subarray(this.#offset - count, this.#offset);
  }

  uvarint(): number {
    let value = 0;
    for (let shift = 0; ; shift += 7) {
      const byte = this.#buffer.readUInt8(this.#offset++);
      value |= (byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
  }

  /** A null string has length 0, an empty one 1. */
  compactString(): void {
    this.skip(Math.max(0, this.uvarint() - 1));
  }

  tags(): void {
    for (let count = this.uvarint(); count > 0; count -= 1) {
      this.uvarint();
      this.skip(this.uvarint());
    }
  }
}

function exchange(broker: string, request: Buffer, timeoutMs: number): Promise<Buffer> {
  const colon = broker.lastIndexOf(':');
  return new Promise((resolve, reject) => {
    const fail = (cause: Error): void => {
      socket.destroy();
      reject(
        new AppError('STORE_UNAVAILABLE', `Kafka at ${broker} is unavailable`, { retryable: true, cause }),
      );
    };
    const socket = connect({ host: broker.slice(0, colon), port: Number(broker.slice(colon + 1)) });
    let received = Buffer.alloc(0);
    socket.setTimeout(timeoutMs, () => fail(new Error('timed out')));
    socket.on('error', fail);
    socket.on('close', () => fail(new Error('connection closed')));
    socket.on('connect', () => socket.write(request));
    socket.on('data', (chunk) => {
      received = Buffer.concat([received, chunk]);
      if (received.length < 4 || received.length < 4 + received.readInt32BE(0)) return;
      resolve(received.subarray(4));
      socket.destroy();
    });
  });
}

function int16(value: number): Buffer {
  const buffer = Buffer.alloc(2);
  buffer.writeInt16BE(value);
  return buffer;
}

function int32(value: number): Buffer {
  const buffer = Buffer.alloc(4);
  buffer.writeInt32BE(value);
  return buffer;
}
