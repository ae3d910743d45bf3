import { toFelt } from '../../../schemas/felt.ts';
import type { Felt } from '../../../schemas/felt.ts';
import type { TokenStandard } from '../../../schemas/messages/common.ts';
import { decodeText, storable } from '../../../schemas/text.ts';
import { isRpcError, rpcCodes } from '../../node/errors.ts';
import type { RpcError } from '../../node/errors.ts';
import type { CallOptions, Node } from '../../node/types.ts';
import { MetadataFailure, unavailable } from './failure.ts';

/** sn_keccak of the names; test/unit/pipeline/observe/nft/token-uri.test.ts computes them. */
export const SELECTORS = {
  token_uri: toFelt(0x0226ad7e84c1fe08eb4c525ed93cccadf9517670341304571e66f7c4f95cbe54n),
  tokenURI: toFelt(0x012a7823b0c6bee58f8c694888f32f862c6584caa8afa0242de046d298ba684dn),
  uri: toFelt(0x02ee3279dd30231650e0b4a1a3516ab3dc26b6d3dfcb6ef20fb4329cfc1213e1n),
} as const;
export type EntryPoint = keyof typeof SELECTORS;

/** By which name and in how many felts each contract took an id. */
export interface Spelling {
  readonly name: EntryPoint;
  readonly isWide: boolean;
}
export interface Spellings {
  get(token: Felt): Spelling | undefined;
  set(token: Felt, spelling: Spelling): unknown;
}

/** Longer ones are refused; on-chain pictures of some tens of kB are not rare. */
export const MAX_URI_BYTES = 262_144;
const MAX_REASON = 500;
const FELT_IDS = 1n << 251n;

/** Entry point not found, call data, contract error, validation: the chain's answer is no. */
const REFUSALS = [rpcCodes.contractNotFound, rpcCodes.entrypointNotFound, 22, rpcCodes.contractError, 41];

/**
 * Asks a contract where the metadata of an NFT is, under every name and with the id in one felt or two: a `ByteArray`,
 * an array of short strings or one short string, as the contract gives it.
 *
 * @throws MetadataFailure where the chain answers that there is none; else what kept it from answering
 */
export async function readTokenUri(
  node: Pick<Node, 'call'>,
  nft: { readonly token: Felt; readonly id: bigint; readonly standard: TokenStandard },
  spellings: Spellings,
  options?: CallOptions,
): Promise<string> {
  let refusal: RpcError | null = null;
  for (const spelling of inTurn(nft, spellings.get(nft.token))) {
    try {
      const answer = await node.call(
        { contract: nft.token, selector: SELECTORS[spelling.name], calldata: calldata(nft.id, spelling) },
        'latest',
        options,
      );
      spellings.set(nft.token, spelling);
      return readUri(answer);
    } catch (error) {
      if (!isRpcError(error, ...REFUSALS)) throw error;
      if (error.rpcCode === rpcCodes.contractNotFound) throw reverted(error);
      // The contract's own reason says more than that it was called the wrong way.
      if (refusal === null || saysMore(error, refusal)) refusal = error;
    }
  }
  throw reverted(refusal);
}

function inTurn(
  { id, standard }: { id: bigint; standard: TokenStandard },
  known: Spelling | undefined,
): Spelling[] {
  const names: readonly EntryPoint[] =
    standard === 'erc1155' ? ['uri', 'token_uri', 'tokenURI'] : ['token_uri', 'tokenURI', 'uri'];
  const all = [true, ...(id < FELT_IDS ? [false] : [])].flatMap((isWide) =>
    names.map((name) => ({ name, isWide })),
  );
  if (known === undefined || (!known.isWide && id >= FELT_IDS)) return all;
  return [known, ...all.filter(({ name, isWide }) => name !== known.name || isWide !== known.isWide)];
}

function calldata(id: bigint, { isWide }: Spelling): Felt[] {
  return isWide ? [toFelt(id & ((1n << 128n) - 1n)), toFelt(id >> 128n)] : [toFelt(id)];
}

function readUri(answer: readonly Felt[]): string {
  if (answer.length > MAX_URI_BYTES) throw unavailable(`the token URI has ${answer.length} felts`);
  const uri = decodeText(answer, MAX_URI_BYTES)?.trim() ?? null;
  if (uri === null) throw unavailable(`the token URI is no text (${answer.length} felts)`);
  if (uri === '') throw unavailable('the token URI is empty');
  if (Buffer.byteLength(uri) > MAX_URI_BYTES)
    throw unavailable(`the token URI is longer than ${MAX_URI_BYTES} bytes`);
  return uri;
}

/** It has no such function, or one of other arguments. */
const NOT_OF_THIS_SHAPE =
  /entry ?_?point|input too (?:long|short)|failed to deserialize param|ASSERT_EQ instruction failed/i;

function saysMore(error: RpcError, than: RpcError): boolean {
  const isMissing = (one: RpcError): boolean =>
    one.rpcCode === rpcCodes.entrypointNotFound || NOT_OF_THIS_SHAPE.test(revertReason(one.data) ?? '');
  return isMissing(than) && !isMissing(error);
}

function reverted(error: RpcError | null): MetadataFailure {
  const reason = error === null ? null : (revertReason(error.data) ?? error.message);
  return new MetadataFailure(
    'reverted',
    storable(reason ?? 'the contract refused').slice(0, MAX_REASON),
    error === null ? {} : { cause: error },
  );
}

const DEEPEST = 32;

/**
 * The reason in an error's `data.revert_error`: a text in older nodes, else nested by contract. Of its texts, each in hex
 * and in quotes (`0x4e6f ('No')`), the first that is not the wrapping of another. null where there is none.
 */
export function revertReason(data: unknown): string | null {
  let at: unknown = data;
  for (let depth = 0; depth < DEEPEST && typeof at === 'object' && at !== null; depth += 1) {
    const inner: Readonly<Record<string, unknown>> = { ...at };
    at = inner['revert_error'] ?? inner['error'];
  }
  if (typeof at !== 'string' || at === '') return null;
  const quoted = [...at.matchAll(/0x[0-9a-fA-F]+ \('([^']*)'\)/g)].map(([, text = '']) => text);
  const [first] = quoted.filter((text) => text !== '' && !/^ENTRYPOINT_FAILED$/.test(text));
  return first ?? at;
}
