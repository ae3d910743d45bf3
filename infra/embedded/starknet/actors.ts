import { feltOfText, hexOf, idTags, type IdCodec } from './hash.ts';

/**
 * Token holders are numbered: first the actors, which send transactions; then passive accounts; then contracts (an
 * exchange, pools, a bridge, a market) and the sequencers; from `NEW_ACCOUNTS` on, accounts deployed by a transaction,
 * numbered by its slot.
 */
export const ACTORS = 256;
export const PASSIVE = 512;
const CONTRACTS = 8;
export const EXCHANGE = ACTORS + PASSIVE;
export const SEQUENCERS = EXCHANGE + CONTRACTS;
const SEQUENCER_COUNT = 2;
export const HOLDERS = SEQUENCERS + SEQUENCER_COUNT;
export const NEW_ACCOUNTS = 1 << 20;

/** The zero address, which mints come from and burns go to. */
export const NOBODY = -1;

/** Number of blocks after which the sequencer changes. */
const SEQUENCER_SPAN = 4096;

export type Actors = {
  address(holder: number): bigint;
  hex(holder: number): string;
  /** The holder of an address; null if the chain has none. */
  find(address: bigint): number | null;
};

export function createActors(seed: string, codec: IdCodec): Actors {
  const addresses = Array.from({ length: HOLDERS }, (_, i) => addressOf(seed, i));
  const hexes = addresses.map(hexOf);
  const byAddress = new Map(addresses.map((address, i) => [address, i]));
  byAddress.set(0n, NOBODY);

  const hex = (holder: number): string => {
    if (holder === NOBODY) return '0x0';
    return hexes[holder] ?? codec.encode(idTags.account, holder, 0, 0);
  };
  return {
    hex,
    address: (holder) => (holder === NOBODY ? 0n : (addresses[holder] ?? BigInt(hex(holder)))),
    find(address) {
      const known = byAddress.get(address);
      if (known !== undefined) return known;
      const id = codec.decode(hexOf(address));
      return id !== null && id.tag === idTags.account && id.a >= NEW_ACCOUNTS ? id.a : null;
    },
  };
}

function addressOf(seed: string, holder: number): bigint {
  // The sequencer address of Starknet mainnet, which clients may compare with.
  if (holder === SEQUENCERS) return 0x1176a1bd84444c89232ec27754698e5d2e7e1a7f1539f12027f28b23ec9f3d8n;
  return feltOfText(`holder:${seed}:${holder}`);
}

export function isActor(holder: number): boolean {
  return holder >= 0 && holder < ACTORS;
}

export function sequencerAt(height: number): number {
  return SEQUENCERS + (Math.floor(height / SEQUENCER_SPAN) % SEQUENCER_COUNT);
}
