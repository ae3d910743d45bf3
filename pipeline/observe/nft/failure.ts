/**
 * The metadata of an NFT cannot be fetched: counts as a failed attempt. Every other error is a fault of the service or the
 * node, and is retried without counting.
 */
export class MetadataFailure extends Error {
  /** `reverted`: the contract refused the call, and the message is the contract's. */
  readonly reason: 'reverted' | 'unavailable';

  constructor(reason: 'reverted' | 'unavailable', message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = 'MetadataFailure';
    this.reason = reason;
  }
}

export const unavailable = (message: string): MetadataFailure => new MetadataFailure('unavailable', message);
