/**
 * Verifies proofs of `GET /api/transfers/proof/`. This file needs no other: it can be copied. It runs wherever Web Crypto does:
 * Deno, Bun, Node from 22.18 on, which read TypeScript, and compiled also in browsers and in Node 20.
 */

/** As the service answers. */
export interface TransferProof {
  readonly block: ProvenBlock;
  readonly event: {
    /** Among all events of the block. */
    readonly index: number;
    readonly from_address: string;
    readonly transaction_hash: string;
    readonly keys: readonly string[];
    readonly data: readonly string[];
  };
  readonly path: readonly ProofStep[];
  readonly root: string;
  readonly finality: string;
  readonly transfer: ProvenTransfer;
}

/** What the hash of a block commits to. */
export interface ProvenBlock {
  readonly number: number;
  readonly hash: string;
  readonly parent_hash: string;
  readonly timestamp: string;
  readonly sequencer_address: string;
  readonly starknet_version: string;
  readonly new_root: string;
  readonly transaction_count: number;
  readonly event_count: number;
  readonly state_diff_length: number;
  readonly l1_da_mode: string;
  readonly l1_gas_price: GasPrice;
  readonly l1_data_gas_price: GasPrice;
  readonly l2_gas_price: GasPrice | null;
  readonly state_diff_commitment: string;
  readonly transaction_commitment: string;
  readonly event_commitment: string;
  readonly receipt_commitment: string;
}

interface GasPrice {
  readonly price_in_wei: string;
  readonly price_in_fri: string;
}

export type ProofStep =
  | { readonly kind: 'binary'; readonly side: 'left' | 'right'; readonly sibling: string }
  | { readonly kind: 'edge'; readonly length: number; readonly bits: string };

/** The fields of a transfer that its event or its block shows. */
export interface ProvenTransfer {
  readonly token_address: string;
  readonly from_address: string;
  readonly to_address: string;
  readonly value: string;
  readonly nft_token_id: string;
  readonly kind: string;
  readonly txhash: string;
  readonly block: number;
  readonly event_index: number;
  readonly timestamp: string;
  readonly status: string;
}

export class ProofError extends Error {
  /**
   * The check that failed. `format`: it is not a proof. `path`: the path does not lead from the event to the commitment of the
   * block. `block_hash`: the header has another hash. `transfer`: the transfer is not what the event says. `asked`: it is not the
   * transfer that was asked for.
   */
  readonly reason: 'format' | 'path' | 'block_hash' | 'transfer' | 'asked';

  constructor(reason: ProofError['reason'], message: string) {
    super(message);
    this.name = 'ProofError';
    this.reason = reason;
  }
}

/**
 * Verifies that a transfer follows from an event of a block with this hash: that the event is in the tree whose root the header
 * commits to, at its index; that the header has the hash; and that token, sender, recipient, amount, token id, transaction,
 * index, block and time of the transfer are those of the event and its block.
 *
 * Not covered: that the chain has a block of this hash. Compare the number and the hash that are returned with a node of your
 * own, or with the state on L1. Nor is what the event does not show: `finality`, the names and decimals of the token, whether its
 * contract is one of erc20 or erc721 or of neither (`kind`: so whether the number is an amount or a token id), fees, and the status
 * of the transaction.
 *
 * @param asked the parameters of the call: without them, a proof of another transfer is as good
 * @returns the block whose hash is to be compared
 * @throws ProofError
 */
export async function verifyProof(
  proof: TransferProof,
  asked?: { readonly txhash: string; readonly event_index: number },
): Promise<{ number: number; hash: string }> {
  constants ??= roundConstants();
  const poseidon = poseidonWith(await constants);
  try {
    verifyPath(proof, poseidon);
    verifyBlockHash(proof.block, poseidon);
    verifyTransfer(proof);
    const { txhash, event_index: index } = proof.transfer;
    if (
      asked !== undefined &&
      (felt(txhash) !== felt(asked.txhash.toLowerCase()) || index !== asked.event_index)
    )
      throw new ProofError('asked', `The proof is of event ${index} of ${txhash}, which was not asked for.`);
  } catch (error) {
    if (error instanceof ProofError) throw error;
    throw new ProofError('format', `Not a proof: ${String(error)}`);
  }
  return { number: proof.block.number, hash: proof.block.hash };
}

/** Prime of the field of Starknet. */
const P = 2n ** 251n + 17n * 2n ** 192n + 1n;
const TREE_HEIGHT = 64;

function felt(text: string): bigint {
  const value = typeof text === 'string' && /^0x[0-9a-f]{1,64}$/.test(text) ? BigInt(text) : P;
  if (value >= P) throw new TypeError(`${text} is no felt`);
  return value;
}

function amount(text: string): bigint {
  if (typeof text === 'string' && /^(0|[1-9][0-9]{0,77})$/.test(text)) return BigInt(text);
  throw new TypeError(`${text} is no amount`);
}

/** An amount that is hashed: what exceeds the field would be hashed as another one. */
function inField(text: string): bigint {
  if (amount(text) < P) return amount(text);
  throw new TypeError(`${text} is no felt`);
}

function count(value: number): bigint {
  if (Number.isSafeInteger(value) && value >= 0) return BigInt(value);
  throw new TypeError(`${value} is no count`);
}

/** A time in its one spelling: no 30th of February, and no 24 o'clock. */
function seconds(text: string): bigint {
  const ms = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/.test(text) ? Date.parse(text) : NaN;
  if (Number.isNaN(ms) || new Date(ms).toISOString() !== text.replace('Z', '.000Z'))
    throw new TypeError(`${text} is no time`);
  return count(ms / 1000);
}

const numberOf = (bytes: Uint8Array): bigint => bytes.reduce((sum, byte) => sum * 256n + BigInt(byte), 0n);
const bytesOf = (text: string): Uint8Array<ArrayBuffer> => new TextEncoder().encode(text);
const ascii = (text: string): bigint => numberOf(bytesOf(text));

function verifyPath({ block, event, path, root }: TransferProof, { hash, pair }: Poseidon): void {
  const { from_address, transaction_hash, keys, data } = event;
  let node = hash([
    felt(from_address),
    felt(transaction_hash),
    count(keys.length),
    ...Array.from(keys, felt),
    count(data.length),
    ...Array.from(data, felt),
  ]);
  let height = 0;
  let index = 0n;
  for (const step of path) {
    if (step.kind === 'edge') {
      const [bits, length] = [felt(step.bits), count(step.length)];
      if (length === 0n || length > TREE_HEIGHT || bits >= 2n ** length)
        throw new TypeError('an edge has other bits than its length');
      node = (pair(node, bits) + length) % P;
      index += bits << BigInt(height);
      height += step.length;
    } else {
      const isRight = step.side === 'right';
      if (step.kind !== 'binary' || (!isRight && step.side !== 'left'))
        throw new TypeError('a step is of no known kind');
      node = isRight ? pair(felt(step.sibling), node) : pair(node, felt(step.sibling));
      if (isRight) index += 1n << BigInt(height);
      height += 1;
    }
    if (height > TREE_HEIGHT) break;
  }
  const fail = (message: string): never => {
    throw new ProofError('path', message);
  };
  if (height !== TREE_HEIGHT) fail('The path has another length than the tree.');
  if (index !== count(event.index)) fail('The path leads to another index than that of the event.');
  if (index >= count(block.event_count)) fail('The block has fewer events.');
  if (node !== felt(block.event_commitment))
    fail('The path does not lead from the event to the event_commitment of the block.');
  if (node !== felt(root)) fail('The path does not lead to the root.');
}

function verifyBlockHash(block: ProvenBlock, { hash }: Poseidon): void {
  const version = block.starknet_version;
  if (typeof version !== 'string') throw new TypeError('the version is no text');
  const [, major, minor, patch] = /^(\d{1,3})\.(\d{1,3})\.(\d{1,3})(?:\.\d{1,9})?$/.exec(version) ?? [];
  const ordered = (Number(major) * 1000 + Number(minor)) * 1000 + Number(patch);
  if (!(ordered >= 13_002))
    throw new ProofError('block_hash', `Blocks of version "${version}" have another kind of hash.`);
  // From 0.13.4 on, the prices are hashed on their own.
  const isNewer = ordered >= 13_004;
  const pricesOf = (price: GasPrice): bigint[] => [inField(price.price_in_wei), inField(price.price_in_fri)];
  const prices = [...pricesOf(block.l1_gas_price), ...pricesOf(block.l1_data_gas_price)];
  if (isNewer && block.l2_gas_price !== null) prices.push(...pricesOf(block.l2_gas_price));
  if (block.l1_da_mode !== 'BLOB' && block.l1_da_mode !== 'CALLDATA')
    throw new TypeError(`${block.l1_da_mode} is no mode of L1 data`);
  const counts =
    (count(block.transaction_count) << 192n) +
    (count(block.event_count) << 128n) +
    (count(block.state_diff_length) << 64n) +
    (block.l1_da_mode === 'BLOB' ? 1n << 63n : 0n);
  const found = hash([
    ascii(isNewer ? 'STARKNET_BLOCK_HASH1' : 'STARKNET_BLOCK_HASH0'),
    count(block.number),
    felt(block.new_root),
    felt(block.sequencer_address),
    seconds(block.timestamp),
    counts,
    felt(block.state_diff_commitment),
    felt(block.transaction_commitment),
    felt(block.event_commitment),
    felt(block.receipt_commitment),
    ...(isNewer ? [hash([ascii('STARKNET_GAS_PRICES0'), ...prices])] : prices),
    ascii(version),
    0n,
    felt(block.parent_hash),
  ]);
  if (found !== felt(block.hash))
    throw new ProofError('block_hash', 'The header of the block has another hash than the block.');
}

/** Items of a batch event are numbered in steps of this in `event_index`. */
const ITEM_FACTOR = 2 ** 20;

function verifyTransfer({ block, event, transfer, finality }: TransferProof): void {
  if (finality !== 'ACCEPTED_ON_L2' && finality !== 'ACCEPTED_ON_L1')
    throw new TypeError(`${finality} is no finality`);
  const equal = {
    token_address: felt(transfer.token_address) === felt(event.from_address),
    txhash: felt(transfer.txhash) === felt(event.transaction_hash),
    block: transfer.block === block.number,
    event_index: count(transfer.event_index) % BigInt(ITEM_FACTOR) === count(event.index),
    timestamp: seconds(transfer.timestamp) === seconds(block.timestamp),
    status: transfer.status === finality,
  };
  const differing = Object.entries(equal).find(([, isEqual]) => !isEqual);
  if (differing !== undefined)
    throw new ProofError('transfer', `${differing[0]} of the transfer is not that of its event or block.`);
  const item = Math.floor(transfer.event_index / ITEM_FACTOR);
  const keys = event.keys.map(felt);
  const data = event.data.map(felt);
  // A component that is not flat puts a key before the others.
  const [reading, another] = [keys, keys.slice(1)]
    .map((own) => readEvent(own, data, item))
    .filter((one) => one !== null);
  // An event that can be read in two ways is no transfer.
  if (reading === undefined || another !== undefined || !isOf(transfer, reading))
    throw new ProofError('transfer', 'Sender, recipient, value or token id are not those of the event.');
}

/**
 * What an event transfers. `id` null: `value` may be an amount or a token id, which the event does not say; without a number
 * in the event it is an amount.
 */
interface Reading {
  readonly from: bigint;
  readonly to: bigint;
  readonly value: bigint;
  readonly id: bigint | null;
  readonly isNumbered: boolean;
}

function isOf(transfer: ProvenTransfer, { from, to, value, id, isNumbered }: Reading): boolean {
  const { kind, nft_token_id: tokenId } = transfer;
  if (felt(transfer.from_address) !== from || felt(transfer.to_address) !== to) return false;
  const shown = amount(transfer.value);
  if (id !== null) return kind === 'erc1155' && shown === value && amount(tokenId) === id;
  if (kind === 'erc721') return isNumbered && shown === 1n && amount(tokenId) === value;
  return (kind === 'erc20' || kind === 'unknown') && shown === value && tokenId === '';
}

const TRANSFER = 0x99cd8bde557814842a3121e8ddfd433a539b8c9f14bf31ebf108d12e6196e9n;
const TRANSFER_SINGLE = 0x182d859c0807ba9db63baf8b9d9fdbfeb885d820be6e206b9dab626d995c433n;
const TRANSFER_BATCH = 0x2563683c757f3abe19c4b7237e2285d8993417ddffe0b54a19eb212ea574b08n;

/** Reads an event of any known layout: sender and recipient are keys, or, with only one key, data. */
function readEvent(keys: readonly bigint[], data: readonly bigint[], item: number): Reading | null {
  const [selector, ...rest] = [...keys, ...data];
  const isKeyed = keys.length > 1;
  if (selector === TRANSFER) {
    const [from, to, ...numbers] = rest;
    const isKnown = ['1+4', '1+3', '3+2', '3+1', '3+0', '4+0', '5+0'].includes(
      `${keys.length}+${data.length}`,
    );
    const value = numbers.length === 0 ? 0n : joined(numbers);
    if (!isKnown || item > 0 || from === undefined || to === undefined || value === null) return null;
    return { from, to, value, id: null, isNumbered: numbers.length > 0 };
  }
  if (keys.length !== (isKeyed ? 4 : 1)) return null;
  const [, from, to, ...numbers] = rest;
  if (from === undefined || to === undefined) return null;
  let [ids, values]: (readonly bigint[])[] = [];
  if (
    selector === TRANSFER_SINGLE &&
    item === 0 &&
    (numbers.length === 4 || (isKeyed && numbers.length === 2))
  ) {
    ids = numbers.slice(0, numbers.length / 2);
    values = numbers.slice(numbers.length / 2);
  } else if (selector === TRANSFER_BATCH) {
    const size = Number(numbers[0]);
    if (numbers.length !== 2 + 4 * size || numbers[1 + 2 * size] !== numbers[0] || item >= size) return null;
    const at = (span: number): readonly bigint[] => numbers.slice(span + 2 * item, span + 2 * item + 2);
    [ids, values] = [at(1), at(2 + 2 * size)];
  }
  const [id, value] = [joined(ids ?? []), joined(values ?? [])];
  return id === null || value === null ? null : { from, to, value, id, isNumbered: true };
}

/** A number of one felt, or of two halves. */
function joined([low, high, ...rest]: readonly bigint[]): bigint | null {
  if (low === undefined || rest.length > 0) return null;
  if (high === undefined) return low;
  return low < 2n ** 128n && high < 2n ** 128n ? low + (high << 128n) : null;
}

type State = readonly [bigint, bigint, bigint];

interface Poseidon {
  readonly hash: (felts: readonly bigint[]) => bigint;
  readonly pair: (left: bigint, right: bigint) => bigint;
}

const FULL_ROUNDS = 8;
const ROUNDS = FULL_ROUNDS + 83;

function poseidonWith(added: readonly bigint[]): Poseidon {
  const permute = (state: State): State => {
    let [a, b, c] = state;
    for (let round = 0; round < ROUNDS; round += 1) {
      const isFull = round < FULL_ROUNDS / 2 || round >= ROUNDS - FULL_ROUNDS / 2;
      a += added[3 * round] ?? 0n;
      b += added[3 * round + 1] ?? 0n;
      c = (c + (added[3 * round + 2] ?? 0n)) ** 3n % P;
      if (isFull) [a, b] = [a ** 3n % P, b ** 3n % P];
      const sum = a + b + c;
      [a, b, c] = [(sum + 2n * a) % P, (sum - 2n * b) % P, (sum - 3n * c) % P];
    }
    return [(a + P) % P, (b + P) % P, (c + P) % P];
  };
  return {
    hash(felts) {
      const padded = [...felts, 1n, ...(felts.length % 2 === 0 ? [0n] : [])];
      let state: State = [0n, 0n, 0n];
      for (let at = 0; at < padded.length; at += 2)
        state = permute([state[0] + (padded[at] ?? 0n), state[1] + (padded[at + 1] ?? 0n), state[2]]);
      return state[0];
    },
    pair: (left, right) => permute([left, right, 2n])[0],
  };
}

let constants: Promise<bigint[]> | undefined;

/** The constants of the rounds are hashes of their numbers. */
async function roundConstants(): Promise<bigint[]> {
  const digests = Array.from({ length: 3 * ROUNDS }, async (_, index) => {
    const digest = await crypto.subtle.digest('SHA-256', bytesOf(`Hades${index}`));
    return numberOf(new Uint8Array(digest)) % P;
  });
  return await Promise.all(digests);
}
