import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';

import { z } from 'zod';

import type { SimBlock } from '../../../infra/embedded/starknet/blocks.ts';
import {
  accountClass,
  classHashOf,
  functionsOf,
  renderClass,
  type ClassKind,
} from '../../../infra/embedded/starknet/classes.ts';
import type { Contracts } from '../../../infra/embedded/starknet/contracts.ts';
import { feltOfText, hexOf } from '../../../infra/embedded/starknet/hash.ts';
import { layoutNames } from '../../../infra/embedded/starknet/layouts.ts';
import type { Ledger } from '../../../infra/embedded/starknet/ledger.ts';
import { interfaceIds, selectorName } from '../../../infra/embedded/starknet/selectors.ts';
import { tokens, type Standard } from '../../../infra/embedded/starknet/tokens.ts';
import { newInHeader } from './spec-versions.ts';

export type RecordedOptions = {
  /** Folder of `*.json` files, each a result of `starknet_getBlockWithReceipts`. */
  dir: string;
  /** Renumbers the blocks from 0 and links them by parent hash; their events stay as they are. */
  rebase?: boolean | undefined;
  /** Standards of contracts by address (any hex form); others are `unknown`, except for well-known tokens. */
  standards?: Readonly<Record<string, Standard>> | undefined;
};

const event = z.object({ from_address: z.string(), keys: z.array(z.string()), data: z.array(z.string()) });

const recordedBlock = z.looseObject({
  status: z.string(),
  block_hash: z.string(),
  parent_hash: z.string(),
  block_number: z.int().min(0),
  transactions: z.array(
    z.object({
      transaction: z.record(z.string(), z.unknown()),
      receipt: z.looseObject({
        transaction_hash: z.string(),
        events: z.array(event),
        finality_status: z.string(),
      }),
    }),
  ),
});

/** The tokens at their mainnet addresses. */
const wellKnown = tokens.slice(0, 6);

type Recorded = { blocks: ReadonlyMap<number, SimBlock>; standards: ReadonlyMap<bigint, Standard> };

export function readRecorded(options: RecordedOptions | undefined): Recorded {
  if (options === undefined) return { blocks: new Map(), standards: new Map() };
  const files = readdirSync(options.dir).filter((file) => file.endsWith('.json'));
  const read = files
    .map((file) => toBlock(JSON.parse(readFileSync(join(options.dir, file), 'utf8'))))
    .sort((a, b) => a.height - b.height);
  const blocks = options.rebase === true ? rebased(read) : read;
  const known = wellKnown.map((token): [bigint, Standard] => [token.address, token.standard]);
  const given = Object.entries(options.standards ?? {}).map(([hex, standard]): [bigint, Standard] => [
    BigInt(hex),
    standard,
  ]);
  return {
    blocks: new Map(blocks.map((block) => [block.height, block])),
    standards: new Map([...known, ...given]),
  };
}

function toBlock(json: unknown): SimBlock {
  const { status: _status, block_hash, parent_hash, transactions, ...rest } = recordedBlock.parse(json);
  const counts = Object.fromEntries(
    newInHeader.flatMap((field) => (field in rest ? [[field, rest[field]]] : [])),
  );
  const header = Object.fromEntries(Object.entries(rest).filter(([field]) => !(field in counts)));
  return {
    height: rest.block_number,
    hash: block_hash,
    parentHash: parent_hash,
    header,
    counts,
    txs: transactions.map(({ transaction, receipt }) => ({
      hash: receipt.transaction_hash,
      transaction,
      receipt,
      events: receipt.events,
    })),
    transfers: [],
    malformed: [],
  };
}

function rebased(blocks: readonly SimBlock[]): SimBlock[] {
  let parentHash = '0x0';
  return blocks.map((block, height) => {
    const hash = hexOf(feltOfText(`rebased:${height}:${block.hash}`));
    const made = { ...block, height, hash, parentHash, header: { ...block.header, block_number: height } };
    parentHash = hash;
    return made;
  });
}

/** Recorded blocks at their heights, all accepted on L1; the heights between do not exist. */
export function recordedLedger({ blocks, standards }: Recorded): Ledger {
  const byHash = new Map([...blocks.values()].map((block) => [BigInt(block.hash), block.height]));
  const places = new Map<bigint, { block: SimBlock; index: number }>();
  const emitters = new Set<bigint>();
  for (const block of blocks.values()) {
    for (const [index, tx] of block.txs.entries()) {
      places.set(BigInt(tx.hash), { block, index });
      for (const { from_address } of tx.events) emitters.add(BigInt(from_address));
    }
  }
  const head = Math.max(0, ...blocks.keys());
  return {
    head: () => head,
    l1: () => head,
    at: (height) => blocks.get(height) ?? null,
    pending: () => null,
    heightOf: (hash) => byHash.get(BigInt(hash)) ?? null,
    transaction: (hash) => places.get(BigInt(hash)) ?? null,
    contracts: recordedContracts(standards, emitters),
  };
}

/** Contracts of which only the standard is known: their class implements it, their state is empty. */
function recordedContracts(
  standards: ReadonlyMap<bigint, Standard>,
  emitters: ReadonlySet<bigint>,
): Contracts {
  const classes = new Map<bigint, ClassKind>([[BigInt(accountClass.hash), accountClass.kind]]);
  for (const standard of ['erc20', 'erc721', 'erc1155', 'unknown'] as const) {
    const { hash, kind } = classOfStandard(standard);
    classes.set(BigInt(hash), kind);
  }
  const standardOf = (address: bigint): Standard | null =>
    standards.get(address) ?? (emitters.has(address) ? 'unknown' : null);
  const classHash = (address: bigint) => {
    const standard = standardOf(address);
    return standard === null ? null : classOfStandard(standard).hash;
  };

  return {
    classHash,
    classByHash(hash) {
      const kind = classes.get(hash);
      return kind === undefined ? null : renderClass(kind);
    },
    call({ address, selector, calldata }) {
      const standard = standardOf(address);
      if (standard === null) return { is: 'no-contract' };
      const name = selectorName(selector);
      if (name === null || !functionsOf(standard, 'both').some((one) => one === name))
        return { is: 'no-entry-point' };
      const felts = answer(standard, address, name, calldata);
      if (felts !== null) return { is: 'result', felts };
      return { is: 'reverted', reason: 'not recorded', classHash: classOfStandard(standard).hash };
    },
  };
}

/** The class of a recorded contract. */
function classOfStandard(standard: Standard): { hash: string; kind: ClassKind } {
  const layouts = layoutNames.filter((name) => name.startsWith(standard)).slice(0, 1);
  const form = standard === 'unknown' ? 'proxy' : 'sierra';
  const kind: ClassKind = { standard, form, naming: 'both', layouts };
  return { hash: classHashOf(kind), kind };
}

function answer(
  standard: Standard,
  address: bigint,
  name: string,
  calldata: readonly bigint[],
): string[] | null {
  const known = wellKnown.find((token) => token.address === address);
  const text = name === 'name' ? known?.name : known?.symbol;
  switch (name) {
    case 'name':
    case 'symbol':
      return text?.as === 'felt' ? [`0x${text.bytes.toString('hex')}`] : ['0x0'];
    case 'decimals':
      return [hexOf(BigInt(known?.decimals ?? 18))];
    case 'supports_interface':
    case 'supportsInterface': {
      const id = standard === 'erc721' ? interfaceIds.erc721 : interfaceIds.erc1155;
      return [calldata[0] === id ? '0x1' : '0x0'];
    }
    default:
      return null;
  }
}
