// The parts of kafkajs below its public interface that topic-id.ts uses, because only they send a request of one's own over an
// encrypted and authenticated connection, and that kafkajs-requests.ts corrects.

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

declare module 'kafkajs/src/network/connection.js' {
  import type { Socket } from 'node:net';

  import type { ISocketFactory } from 'kafkajs';
  import type { InternalLogger } from 'kafkajs/src/network/connectionPool.js';
  import type RequestQueue from 'kafkajs/src/network/requestQueue/index.js';

  export default class Connection {
    constructor(options: {
      host: string;
      port: number;
      socketFactory: ISocketFactory;
      connectionTimeout: number;
      requestTimeout: number;
      logger: InternalLogger;
    });
    readonly requestQueue: RequestQueue;
    readonly socket: Socket;
    readonly socketFactory: ISocketFactory;
    connect: (this: Connection) => Promise<boolean>;
    isConnected(): boolean;
  }
}

declare module 'kafkajs/src/network/requestQueue/index.js' {
  import type { InternalLogger } from 'kafkajs/src/network/connectionPool.js';

  export interface InflightRequest {
    readonly entry: { readonly apiKey: number };
    readonly sentAt: number;
    readonly requestTimeout: number;
  }
  /** The requests of one connection. */
  export default class RequestQueue {
    constructor(options: {
      maxInFlightRequests: number | null;
      requestTimeout: number;
      enforceRequestTimeout: boolean;
      clientId: string;
      broker: string;
      logger: InternalLogger;
      isConnected: () => boolean;
    });
    /** As `host:port`. */
    readonly broker: string;
    readonly pending: readonly unknown[];
    readonly inflight: ReadonlyMap<number, InflightRequest>;
    readonly enforceRequestTimeout: boolean;
    readonly isConnected: () => boolean;
    /** Unix milliseconds; -1: never. */
    readonly throttledUntil: number;
    throttleCheckTimeoutId: NodeJS.Timeout | null;
    push(request: {
      readonly entry: {
        readonly correlationId: number;
        readonly resolve: (response: unknown) => void;
        readonly reject: (error: Error) => void;
      };
      readonly expectResponse: boolean;
      readonly sendRequest: () => void;
    }): void;
    fulfillRequest(response: {
      readonly correlationId: number;
      readonly payload: Buffer;
      readonly size: number;
    }): void;
    maybeThrottle(ms: number): void;
    checkPendingRequests(): void;
    scheduleCheckPendingRequests(): void;
    scheduleRequestTimeoutCheck(): void;
    destroy(): void;
  }
}

declare module 'kafkajs/src/consumer/consumerGroup.js' {
  import type { InternalLogger } from 'kafkajs/src/network/connectionPool.js';

  interface Coordinator {
    readonly nodeId: number;
  }
  interface Broker {
    /** `coordinatorType` 0: of a consumer group. */
    findGroupCoordinator(options: {
      readonly groupId: string;
      readonly coordinatorType: number;
    }): Promise<{ readonly coordinator: Coordinator }>;
  }
  export default class ConsumerGroup {
    constructor(options: {
      logger: InternalLogger;
      instrumentationEmitter: { emit(name: string, payload: unknown): void };
    });
    readonly groupId: string;
    /** Milliseconds. */
    readonly sessionTimeout: number;
    readonly cluster: {
      /** To any broker. */
      isConnected(): boolean;
      readonly brokerPool: { findConnectedBroker(): Promise<Broker> };
      /** Connects to it. */
      findBroker(options: { readonly nodeId: number }): Promise<Coordinator>;
      refreshMetadata(): Promise<void>;
    };
    /** null before the group is first joined. */
    coordinator: Coordinator | null;
    readonly offsetManager: { coordinator: Coordinator } | null;
    /** Of the last heartbeat that was answered, unix milliseconds. */
    lastRequest: number;
    /** Sends a heartbeat unless the last one is younger than `interval` (ms). */
    heartbeat: (this: ConsumerGroup, options: { readonly interval: number }) => Promise<void>;
    /** Called with the error of a fetch from one broker. What it throws ends the fetches from all. */
    recoverFromFetch: (this: ConsumerGroup, error: Error) => Promise<void>;
  }
}
