import { toFelt } from '../../../schemas/felt.ts';
import type { Felt } from '../../../schemas/felt.ts';
import type { TokenStandard } from '../../../schemas/messages/common.ts';
import { decodeText, storable } from '../../../schemas/text.ts';
import { isContractError, rpcCodes } from '../../node/errors.ts';
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

/** How a contract is called: the name of its entry point, and the id in one felt or two. */
export interface CallForm {
  readonly name: EntryPoint;
  readonly isWide: boolean;
}
/** The call form that each contract answered last. */
export interface CallForms {
  get(token: Felt): CallForm | undefined;
  set(token: Felt, form: CallForm): unknown;
}

/** On-chain images of some tens of kB are common. */
export const MAX_URI_BYTES = 262_144;
const MAX_REASON = 500;
const FELT_IDS = 1n << 251n;

/**
 * Reads the metadata URI of an NFT, trying every entry point name with the id in one felt and in two. The answer may be a
 * `ByteArray`, an array of short strings or one short string.
 *
 * @throws MetadataFailure where the contract refuses every form; the error of a node that did not answer
 */
export async function readTokenUri(
  node: Pick<Node, 'call'>,
  nft: { readonly token: Felt; readonly id: bigint; readonly standard: TokenStandard },
  forms: CallForms,
  options?: CallOptions,
): Promise<string> {
  let refusal: RpcError | null = null;
  for (const form of formsToTry(nft, forms.get(nft.token))) {
    try {
      const answer = await node.call(
        { contract: nft.token, selector: SELECTORS[form.name], calldata: calldata(nft.id, form) },
        'latest',
        options,
      );
      forms.set(nft.token, form);
      return readUri(answer);
    } catch (error) {
      if (!isContractError(error)) throw error;
      if (error.rpcCode === rpcCodes.contractNotFound) throw reverted(error);
      // The contract's own reason is worth more than that of a call in the wrong form.
      if (refusal === null || isBetterReason(error, refusal)) refusal = error;
    }
  }
  throw reverted(refusal);
}

function formsToTry(
  { id, standard }: { id: bigint; standard: TokenStandard },
  previous: CallForm | undefined,
): CallForm[] {
  const names: readonly EntryPoint[] =
    standard === 'erc1155' ? ['uri', 'token_uri', 'tokenURI'] : ['token_uri', 'tokenURI', 'uri'];
  const all = [true, ...(id < FELT_IDS ? [false] : [])].flatMap((isWide) =>
    names.map((name) => ({ name, isWide })),
  );
  if (previous === undefined || (!previous.isWide && id >= FELT_IDS)) return all;
  return [
    previous,
    ...all.filter(({ name, isWide }) => name !== previous.name || isWide !== previous.isWide),
  ];
}

function calldata(id: bigint, { isWide }: CallForm): Felt[] {
  return isWide ? [toFelt(id & ((1n << 128n) - 1n)), toFelt(id >> 128n)] : [toFelt(id)];
}

function readUri(answer: readonly Felt[]): string {
  if (answer.length > MAX_URI_BYTES) throw unavailable(`the token URI has ${answer.length} felts`);
  const uri = decodeText(answer, MAX_URI_BYTES)?.trim() ?? null;
  if (uri === null) throw unavailable(`the token URI is not text (${answer.length} felts)`);
  if (uri === '') throw unavailable('the token URI is empty');
  if (Buffer.byteLength(uri) > MAX_URI_BYTES)
    throw unavailable(`the token URI is longer than ${MAX_URI_BYTES} bytes`);
  return uri;
}

/** The contract has no such function, or one with other arguments. */
const WRONG_FORM =
  /entry ?_?point|input too (?:long|short)|failed to deserialize param|ASSERT_EQ instruction failed/i;

function isBetterReason(error: RpcError, than: RpcError): boolean {
  const isWrongForm = ({ rpcCode, data }: RpcError): boolean =>
    rpcCode === rpcCodes.entrypointNotFound || WRONG_FORM.test(revertReason(data) ?? '');
  return isWrongForm(than) && !isWrongForm(error);
}

function reverted(error: RpcError | null): MetadataFailure {
  const reason = error === null ? null : (revertReason(error.data) ?? error.message);
  return new MetadataFailure(
    'reverted',
    storable(reason ?? 'the contract refused').slice(0, MAX_REASON),
    error === null ? {} : { cause: error },
  );
}

const MAX_DEPTH = 32;

/**
 * Extracts the reason from an error's `data.revert_error`: text in older nodes, nested by contract in newer ones. It holds
 * short strings in hex and in quotes (`0x4e6f ('No')`); the first that is not a generic wrapper is the reason.
 */
export function revertReason(data: unknown): string | null {
  let current: unknown = data;
  for (let depth = 0; depth < MAX_DEPTH && typeof current === 'object' && current !== null; depth += 1) {
    const inner: Readonly<Record<string, unknown>> = { ...current };
    current = inner['revert_error'] ?? inner['error'];
  }
  if (typeof current !== 'string' || current === '') return null;
  const quoted = [...current.matchAll(/0x[0-9a-fA-F]+ \('([^']*)'\)/g)].map(([, text = '']) => text);
  const [first] = quoted.filter((text) => text !== '' && !/^ENTRYPOINT_FAILED$/.test(text));
  return first ?? current;
}
