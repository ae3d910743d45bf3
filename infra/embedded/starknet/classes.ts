import { gzipSync } from 'node:zlib';

import { feltOfText, hexOf } from './hash.ts';
import { type Layout } from './layouts.ts';
import { accountClassHash } from './envelope.ts';
import { selectors, type SelectorName } from './selectors.ts';
import type { ClassForm, Naming, Standard, Token } from './tokens.ts';

export type ClassKind = {
  standard: Standard | 'account';
  form: ClassForm;
  naming: Naming;
  layouts: readonly Layout[];
};

const camelOf: Partial<Record<SelectorName, SelectorName>> = {
  balance_of: 'balanceOf',
  total_supply: 'totalSupply',
  owner_of: 'ownerOf',
  token_uri: 'tokenURI',
  transfer_from: 'transferFrom',
  safe_transfer_from: 'safeTransferFrom',
  safe_batch_transfer_from: 'safeBatchTransferFrom',
  supports_interface: 'supportsInterface',
};

const snake: Record<ClassKind['standard'], readonly SelectorName[]> = {
  erc20: ['name', 'symbol', 'decimals', 'total_supply', 'balance_of', 'transfer', 'transfer_from', 'approve'],
  erc721: [
    ...(['name', 'symbol', 'balance_of', 'owner_of', 'token_uri'] as const),
    ...(['transfer_from', 'safe_transfer_from', 'approve', 'supports_interface'] as const),
  ],
  erc1155: [
    ...(['name', 'symbol', 'balance_of', 'uri', 'token_uri'] as const),
    ...(['safe_transfer_from', 'safe_batch_transfer_from', 'supports_interface'] as const),
  ],
  unknown: [],
  account: ['__execute__', 'supports_interface'],
};

/** The entry points of a standard under a naming, as the ABI declares them and `starknet_call` accepts them. */
export function functionsOf(standard: ClassKind['standard'], naming: Naming): SelectorName[] {
  return snake[standard].flatMap((name) => {
    const camel = camelOf[name];
    if (camel === undefined || naming === 'snake') return [name];
    return naming === 'camel' ? [camel] : [name, camel];
  });
}

/** The class of a token at a height; an upgrade changes it. */
export function classOfToken(token: Token, height: number): { hash: string; kind: ClassKind } {
  const old = token.upgrade !== undefined && height < token.upgrade.height;
  const layouts = old ? (token.upgrade?.before ?? []) : token.layouts;
  const kind: ClassKind = { standard: token.standard, form: token.form, naming: token.naming, layouts };
  return { hash: classHashOf(kind), kind };
}

export const accountClass = {
  hash: accountClassHash,
  kind: { standard: 'account', form: 'sierra', naming: 'snake', layouts: [] } satisfies ClassKind,
};

export function classHashOf(kind: ClassKind): string {
  // All proxies share one class, which does not reveal their standard.
  const name =
    kind.form === 'proxy' ? 'proxy' : `${kind.standard}:${kind.form}:${kind.naming}:${kind.layouts.join()}`;
  return hexOf(feltOfText(`class:${name}`));
}

/** The result of `starknet_getClass`. */
export function renderClass(kind: ClassKind): Record<string, unknown> {
  if (kind.form === 'proxy')
    return cairo0Class(
      ['__default__'],
      [{ type: 'constructor', name: 'constructor', inputs: [], outputs: [] }, defaultFunction],
    );
  const functions = functionsOf(kind.standard, kind.naming);
  if (kind.form === 'cairo0') {
    const abi = [...functions.map(cairo0Function), ...kind.layouts.map(cairo0Event)];
    return cairo0Class(functions, abi);
  }
  const items = functions.map(sierraFunction);
  const callable =
    kind.form === 'sierra-flat'
      ? items
      : [
          { type: 'impl', name: 'TokenImpl', interface_name: 'sim::interface::IToken' },
          { type: 'interface', name: 'sim::interface::IToken', items },
        ];
  const abi = [...callable, ...sierraEvents(kind)];
  return {
    sierra_program: ['0x1', '0x7', '0x0', '0x2', '0xb', '0x4'],
    contract_class_version: '0.1.0',
    entry_points_by_type: {
      EXTERNAL: functions.map((name, function_idx) => ({ selector: selectors[name], function_idx })),
      L1_HANDLER: [],
      CONSTRUCTOR: [],
    },
    abi: JSON.stringify(abi),
  };
}

const defaultFunction = {
  type: 'function',
  name: '__default__',
  inputs: [
    { name: 'selector', type: 'felt' },
    { name: 'calldata_size', type: 'felt' },
    { name: 'calldata', type: 'felt*' },
  ],
  outputs: [
    { name: 'retdata_size', type: 'felt' },
    { name: 'retdata', type: 'felt*' },
  ],
};

const cairo0Program = gzipSync(JSON.stringify({ builtins: ['pedersen', 'range_check'], data: [] })).toString(
  'base64',
);

function cairo0Class(functions: readonly SelectorName[], abi: readonly unknown[]): Record<string, unknown> {
  return {
    program: cairo0Program,
    entry_points_by_type: {
      EXTERNAL: functions.map((name, i) => ({
        offset: hexOf(BigInt(16 + i * 24)),
        selector: selectors[name],
      })),
      L1_HANDLER: [],
      CONSTRUCTOR: [],
    },
    abi,
  };
}

const u256 = 'core::integer::u256';
const address = 'core::starknet::contract_address::ContractAddress';

const inputs: Partial<Record<SelectorName, readonly [string, string][]>> = {
  balance_of: [['account', address]],
  owner_of: [['token_id', u256]],
  token_uri: [['token_id', u256]],
  uri: [['token_id', u256]],
  supports_interface: [['interface_id', 'core::felt252']],
  transfer: [
    ['recipient', address],
    ['amount', u256],
  ],
  transfer_from: [
    ['sender', address],
    ['recipient', address],
    ['amount', u256],
  ],
  approve: [
    ['spender', address],
    ['amount', u256],
  ],
};

const snakeOf = new Map(Object.entries(camelOf).map(([name, camel]) => [camel, name]));

function inputsOf(name: SelectorName): readonly [string, string][] {
  const plain = snakeOf.get(name) ?? name;
  return Object.entries(inputs).find(([key]) => key === plain)?.[1] ?? [];
}

function sierraFunction(name: SelectorName): unknown {
  const view = !/^(transfer|safe|approve|__)/.test(name);
  return {
    type: 'function',
    name,
    inputs: inputsOf(name).map(([input, type]) => ({ name: input, type })),
    outputs: view ? [{ type: name === 'decimals' ? 'core::integer::u8' : 'core::felt252' }] : [],
    state_mutability: view ? 'view' : 'external',
  };
}

function cairo0Function(name: SelectorName): unknown {
  const view = !/^(transfer|safe|approve|__)/.test(name);
  const short = (type: string) => (type === u256 ? 'Uint256' : 'felt');
  return {
    type: 'function',
    name,
    inputs: inputsOf(name).map(([input, type]) => ({ name: input, type: short(type) })),
    outputs: view ? [{ name: 'value', type: 'felt' }] : [],
    ...(view ? { stateMutability: 'view' } : {}),
  };
}

/** Members of the event of a layout: name, type, and whether it is a key. */
function membersOf(layout: Layout): { event: SelectorName; members: [string, string, boolean][] } {
  const [standard, shape] = layout.split(':');
  if (standard === 'erc1155') {
    const batch = layout.endsWith('batch');
    const keyed = !layout.includes('legacy') && layout !== 'erc1155:1/7';
    const type = batch ? `core::array::Span::<${u256}>` : layout === 'erc1155:4/2' ? 'core::felt252' : u256;
    return {
      event: batch ? 'TransferBatch' : 'TransferSingle',
      members: [
        ['operator', address, keyed],
        ['from', address, keyed],
        ['to', address, keyed],
        [batch ? 'ids' : 'id', type, false],
        [batch ? 'values' : 'value', type, false],
      ],
    };
  }
  const last = standard === 'erc721' ? 'token_id' : 'value';
  const felt = ['3/1', '1/3', '4/0'].includes(shape ?? '') ? 'core::felt252' : u256;
  const keyed = !['1/4', '1/3', 'component-data'].includes(shape ?? '');
  const lastKeyed = shape === '5/0' || shape === '4/0' || layout === 'erc721:component';
  const members: [string, string, boolean][] = [
    ['from', address, keyed],
    ['to', address, keyed],
  ];
  if (shape !== '3/0') members.push([last, felt, lastKeyed]);
  return { event: 'Transfer', members };
}

function cairo0Event(layout: Layout): unknown {
  const { event, members } = membersOf(layout);
  const rename: Record<string, string> = { from: 'from_', token_id: 'tokenId' };
  const data = members.map(([name, type]) => ({
    name: rename[name] ?? name,
    type: type === u256 ? 'Uint256' : 'felt',
  }));
  return { type: 'event', name: event, keys: [], data };
}

function sierraEvents(kind: ClassKind): unknown[] {
  const structs = kind.layouts.map((layout) => {
    const { event, members } = membersOf(layout);
    const fields = members.map(([name, type, key]) => ({ name, type, kind: key ? 'key' : 'data' }));
    return { type: 'event', name: `sim::token::${event}`, kind: 'struct', members: fields };
  });
  const unique = structs.filter((one, i) => structs.findIndex(({ name }) => name === one.name) === i);
  const component = kind.layouts.some((layout) => layout.includes('component'));
  const inner = unique.map(({ name }) => ({ name: name.split('::').at(-1), type: name, kind: 'nested' }));
  const variant = `${kind.standard.toUpperCase()}Event`;
  return [
    ...unique,
    { type: 'event', name: 'sim::component::Event', kind: 'enum', variants: inner },
    {
      type: 'event',
      name: 'sim::contract::Event',
      kind: 'enum',
      variants: [{ name: variant, type: 'sim::component::Event', kind: component ? 'nested' : 'flat' }],
    },
  ];
}
