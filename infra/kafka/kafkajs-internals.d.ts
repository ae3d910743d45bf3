// The parts of kafkajs below its public interface that topic-id.ts uses, because only they send a request of one's own over an
// encrypted and authenticated connection.

declare module 'kafkajs/src/network/connectionPool.js' {
  import type { ISocketFactory, SASLOptions } from 'kafkajs';

  export interface InternalLogger {
    namespace(name: string): InternalLogger;
    debug(message: string): void;
    info(message: string): void;
    warn(message: string): void;
    error(message: string): void;
  }
  export interface ProtocolRequest<T> {
    readonly request: {
      readonly apiKey: number;
      readonly apiVersion: number;
      readonly apiName: string;
      /** The body; kafkajs writes a header of version 1 before it. */
      encode(): Promise<{ readonly buf: Buffer; readonly buffer: Buffer }>;
    };
    readonly response: {
      /** All bytes after the correlation id. */
      decode(response: Buffer): Promise<T>;
      parse(decoded: T): Promise<T>;
    };
  }
  export default class ConnectionPool {
    constructor(options: {
      host: string;
      port: number;
      ssl?: object | null;
      sasl?: SASLOptions | null;
      clientId: string;
      socketFactory: ISocketFactory;
      connectionTimeout: number;
      requestTimeout: number;
      logger: InternalLogger;
    });
    send<T>(request: ProtocolRequest<T>): Promise<T>;
    destroy(): Promise<void>;
  }
}

declare module 'kafkajs/src/broker/index.js' {
  import type ConnectionPool from 'kafkajs/src/network/connectionPool.js';
  import type { InternalLogger } from 'kafkajs/src/network/connectionPool.js';

  export default class Broker {
    constructor(options: { connectionPool: ConnectionPool; logger: InternalLogger });
    /** Connects, negotiates versions and logs in. */
    connect(): Promise<void>;
  }
}
