import Broker from 'kafkajs/src/broker/index.js';
import ConnectionPool from 'kafkajs/src/network/connectionPool.js';
import type { InternalLogger, ProtocolRequest } from 'kafkajs/src/network/connectionPool.js';

import { AppError } from '../../schemas/errors.ts';
import { connectionOptions, kafkaError } from './connection.ts';
import type { KafkaConnection } from './connection.ts';

const TIMEOUT_MS = 5000;

/**
 * The id of a topic (KIP-516), which changes when the topic is deleted and created again, so that a checkpoint of the old
 * log is recognized. Asks one broker after the other, with a Metadata request v12, because the versions that kafkajs speaks
 * lack the id.
 *
 * @returns the id as 32 hex digits
 */
export async function fetchTopicId(connection: KafkaConnection, topic: string): Promise<string> {
  if (topic.length > 126) throw new AppError('INVALID', `Topic name longer than 126 characters: ${topic}`);
  let lastError: unknown;
  for (const address of connection.brokers) {
    try {
      return await askBroker(connection, address, topic);
    } catch (error) {
      lastError = error;
    }
  }
  throw lastError;
}

async function askBroker(connection: KafkaConnection, address: string, topic: string): Promise<string> {
  const colon = address.lastIndexOf(':');
  const { brokers: _all, ...options } = connectionOptions(connection);
  const pool = new ConnectionPool({
    ...options,
    host: address.slice(0, colon),
    port: Number(address.slice(colon + 1)),
    clientId: 'tds',
    requestTimeout: TIMEOUT_MS,
    logger: silent,
  });
  try {
    await new Broker({ connectionPool: pool, logger: silent }).connect();
    return await pool.send(metadataRequest(topic));
  } catch (cause) {
    throw kafkaError(`Kafka at ${address} is unavailable`, cause);
  } finally {
    await pool.destroy();
  }
}

const silent: InternalLogger = {
  namespace: () => silent,
  debug() {},
  info() {},
  warn() {},
  error() {},
};

/**
 * A Metadata request v12: topics [{topic_id, name}], allow_auto_topic_creation, include_operations. Its header has
 * version 2: a header of version 1, which kafkajs writes, followed by tags.
 */
function metadataRequest(topic: string): ProtocolRequest<string> {
  const name = Buffer.from(topic);
  const buffer = Buffer.concat([
    Buffer.from([0]), // tags of the header
    Buffer.from([2]), // compact array of one topic
    Buffer.alloc(16), // no id: look up by name
    Buffer.from([name.length + 1]),
    name,
    Buffer.from([0, 0, 0, 0]), // topic tags, no auto creation, no operations, tags
  ]);
  return {
    request: {
      apiKey: 3,
      apiVersion: 12,
      apiName: 'Metadata',
      encode: async () => ({ buf: buffer, buffer }),
    },
    response: {
      decode: async (response) => readTopicId(response, topic),
      parse: async (id) => id,
    },
  };
}

function readTopicId(response: Buffer, topic: string): string {
  const reader = new Reader(response);
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
