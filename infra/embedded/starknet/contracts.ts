import { isNft } from '../../../schemas/messages/common.ts';
import { NEW_ACCOUNTS, NOBODY } from './actors.ts';
import type { SimulatedChain } from './chain.ts';
import { accountClass, classOfToken, functionsOf, renderClass, type ClassKind } from './classes.ts';
import { hexOf, u256 } from './hash.ts';
import { interfaceIds, selectorName } from './selectors.ts';
import type { TextAnswer, Token } from './tokens.ts';

type CallAnswer =
  | { is: 'result'; felts: string[] }
  | { is: 'no-contract' }
  | { is: 'no-entry-point' }
  | { is: 'reverted'; reason: string; classHash: string };

type CallRequest = { address: bigint; selector: bigint; calldata: readonly bigint[]; height: number };

/** The contracts of the chain at a height. */
export type Contracts = {
  classHash(address: bigint, height: number): string | null;
  classByHash(hash: bigint): Record<string, unknown> | null;
  call(request: CallRequest): CallAnswer;
};

/** The contracts of a fork of the simulated chain. */
export function createContracts(chain: SimulatedChain, forkOf: () => number): Contracts {
  const { actors, schedule } = chain.source;
  const classes = new Map<bigint, ClassKind>([[BigInt(accountClass.hash), accountClass.kind]]);
  for (const token of schedule.tokens.list) {
    for (const height of [0, token.upgrade?.height ?? 0]) {
      const { hash, kind } = classOfToken(token, height);
      classes.set(BigInt(hash), kind);
    }
  }

  function classHash(address: bigint, height: number): string | null {
    const token = schedule.tokens.at(address);
    if (token !== null) return classOfToken(token, height).hash;
    const holder = actors.find(address);
    if (holder === null || holder === NOBODY) return null;
    if (holder >= NEW_ACCOUNTS && (holder - NEW_ACCOUNTS) / schedule.slots >= height + 1) return null;
    return accountClass.hash;
  }

  function call({ address, selector, calldata, height }: CallRequest): CallAnswer {
    const hash = classHash(address, height);
    if (hash === null) return { is: 'no-contract' };
    const name = selectorName(selector);
    const token = schedule.tokens.at(address);
    const answers = token === null ? ['supports_interface'] : entryPointsOf(token);
    if (name === null || !answers.includes(name)) return { is: 'no-entry-point' };
    const outcome = token === null ? ['0x0'] : answer(chain, forkOf(), token, name, calldata, height);
    return typeof outcome === 'string'
      ? { is: 'reverted', reason: outcome, classHash: hash }
      : { is: 'result', felts: outcome };
  }

  return {
    classHash,
    call,
    classByHash(hash) {
      const kind = classes.get(hash);
      return kind === undefined ? null : renderClass(kind);
    },
  };
}

function entryPointsOf(token: Token): readonly string[] {
  return token.answers === 'standard' ? functionsOf(token.standard, token.naming) : token.answers;
}

/** The returned felts, or the reason of a revert. */
function answer(
  chain: SimulatedChain,
  fork: number,
  token: Token,
  name: string,
  calldata: readonly bigint[],
  height: number,
): string[] | string {
  const { actors } = chain.source;
  const [first = 0n, second = 0n, third = 0n] = calldata;
  switch (name) {
    case 'name':
      return textAnswer(token.name);
    case 'symbol':
      return textAnswer(token.symbol);
    case 'decimals':
      return [hexOf(BigInt(token.decimals))];
    case 'balance_of':
    case 'balanceOf': {
      if (calldata.length === 0) return 'Failed to deserialize param #1';
      const holder = actors.find(first);
      const id = token.standard === 'erc1155' ? second | (third << 128n) : null;
      const balance = holder === null ? 0n : chain.balances.balance(fork, height, token, holder, id);
      return amountAnswer(token, balance);
    }
    case 'total_supply':
    case 'totalSupply':
      return amountAnswer(token, chain.balances.supply(fork, height, token));
    case 'owner_of':
    case 'ownerOf': {
      const owner = chain.balances.ownerOf(fork, height, token, first | (second << 128n));
      return owner === null ? 'ERC721: invalid token ID' : [actors.hex(owner)];
    }
    case 'token_uri':
    case 'tokenURI':
    case 'uri': {
      const id = first | (second << 128n);
      if (token.standard === 'erc721' && chain.balances.ownerOf(fork, height, token, id) === null) {
        return 'ERC721: invalid token ID';
      }
      return uriAnswer(token, id);
    }
    case 'supports_interface':
    case 'supportsInterface':
      return [supportsInterface(token, first) ? '0x1' : '0x0'];
    default:
      return 'Caller is the zero address';
  }
}

function amountAnswer(token: Token, amount: bigint): string[] {
  // Contracts with felt amounts return one felt instead of a u256.
  const inFelts = token.layouts.some((layout) => ['erc20:3/1', 'erc20:1/3', 'erc20:4/0'].includes(layout));
  return inFelts ? [hexOf(amount)] : u256(amount);
}

function supportsInterface(token: Token, id: bigint): boolean {
  if (!isNft(token.standard)) return false;
  const erc721 = token.standard === 'erc721';
  const { src5, erc165 } = interfaceIds;
  const newIds: readonly bigint[] = [src5, erc721 ? interfaceIds.erc721 : interfaceIds.erc1155];
  const oldIds: readonly bigint[] = [erc165, erc721 ? interfaceIds.erc721Legacy : interfaceIds.erc1155Legacy];
  if (token.interfaces.includes('src5') && newIds.includes(id)) return true;
  return token.interfaces.includes('legacy') && oldIds.includes(id);
}

function textAnswer(text: TextAnswer): string[] | string {
  switch (text.as) {
    case 'revert':
      return text.reason;
    case 'felt':
      return [feltOfBytes(text.bytes)];
    case 'byte-array':
      return byteArray(text.bytes);
  }
}

function feltOfBytes(bytes: Buffer): string {
  return bytes.length === 0 ? '0x0' : hexOf(BigInt(`0x${bytes.toString('hex')}`));
}

/** A ByteArray: number of 31-byte words, the words, the remaining bytes, their length. */
function byteArray(bytes: Buffer): string[] {
  const full = Math.floor(bytes.length / 31);
  const words = Array.from({ length: full }, (_, i) => feltOfBytes(bytes.subarray(i * 31, i * 31 + 31)));
  const rest = bytes.subarray(full * 31);
  return [hexOf(BigInt(full)), ...words, feltOfBytes(rest), hexOf(BigInt(rest.length))];
}

function uriAnswer(token: Token, id: bigint): string[] | string {
  const folder = `ipfs://bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi/${token.key}`;
  const path = `${folder}/${id}`;
  const { uri = 'revert' } = token;
  switch (uri) {
    case 'revert':
      return 'Metadata is not revealed yet';
    case 'ipfs':
      return byteArray(Buffer.from(path));
    case 'felts': {
      // Cairo 0: the number of short strings, then the strings.
      const bytes = Buffer.from(path);
      const words = Array.from({ length: Math.ceil(bytes.length / 31) }, (_, i) =>
        feltOfBytes(bytes.subarray(i * 31, i * 31 + 31)),
      );
      return [hexOf(BigInt(words.length)), ...words];
    }
    case 'doubled':
      // Some contracts put a gateway URL in front of a complete URI.
      return byteArray(Buffer.from(`https://gateway.example/ipfs/${path}.json`));
    case 'placeholder':
      return byteArray(Buffer.from(`${folder}/{id}.json`));
    case 'data': {
      const json = JSON.stringify({
        name: `${token.key} #${id}`,
        description: 'Stored on chain.',
        attributes: [{ trait_type: 'digits', value: id.toString().length }],
      });
      return byteArray(Buffer.from(`data:application/json;base64,${Buffer.from(json).toString('base64')}`));
    }
  }
}
