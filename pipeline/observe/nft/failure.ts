/**
 * Why an NFT's metadata cannot be had: what counts as a failed attempt. All else that is thrown is our own trouble, and
 * is tried again without counting.
 */
export class MetadataFailure extends Error {
  /** `reverted`: the contract refused, and the message is its own. */
  readonly reason: 'reverted' | 'unavailable';

  constructor(reason: 'reverted' | 'unavailable', message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = 'MetadataFailure';
    this.reason = reason;
  }
}

export const unavailable = (message: string): MetadataFailure => new MetadataFailure('unavailable', message);
