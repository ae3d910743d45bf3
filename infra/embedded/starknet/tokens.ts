import { feltOfText, hexOf, mix } from './hash.ts';
import type { Layout } from './layouts.ts';

export type Standard = 'erc20' | 'erc721' | 'erc1155' | 'unknown';

/** How a contract answers `name` and `symbol`: a felt, a ByteArray, or a revert. */
export type TextAnswer =
  | { as: 'felt'; bytes: Buffer }
  | { as: 'byte-array'; bytes: Buffer }
  | { as: 'revert'; reason: string };

export type Naming = 'snake' | 'camel' | 'both';

/** What the class tells: a Sierra ABI (nested in interfaces or flat), a Cairo 0 ABI, or a proxy's, which tells nothing. */
export type ClassForm = 'sierra' | 'sierra-flat' | 'cairo0' | 'proxy';

type TokenSpec = {
  key: string;
  address: bigint;
  standard: Standard;
  decimals: number;
  name: TextAnswer;
  symbol: TextAnswer;
  /** One is drawn for each event; ERC-1155: for the single event. */
  layouts: readonly Layout[];
  batchLayout?: Layout;
  /** Before this height the token's class is an older one, which speaks `before`. */
  upgrade?: { height: number; before: readonly Layout[] };
  /** How many notes the token has (schedule.ts): its share of the traffic. */
  notes: number;
  naming: Naming;
  form: ClassForm;
  /** Entry points that answer: those of the standard, or only these. */
  answers: 'standard' | readonly string[];
  numbers: 'units' | 'beyond-128-bits' | 'zero' | 'sequence' | 'felt-ids' | 'wide-ids';
  uri?: 'ipfs' | 'data' | 'doubled' | 'placeholder' | 'revert' | 'felts';
  interfaces: readonly ('src5' | 'legacy')[];
};

export type Token = TokenSpec & { index: number; hex: string };

const felt = (text: string): TextAnswer => ({ as: 'felt', bytes: Buffer.from(text) });
const bytes = (text: string): TextAnswer => ({ as: 'byte-array', bytes: Buffer.from(text) });

const base = { decimals: 18, naming: 'both', form: 'sierra', answers: 'standard', interfaces: [] } as const;
const erc20 = { ...base, standard: 'erc20', numbers: 'units' } as const;
const erc721 = {
  ...base,
  standard: 'erc721',
  decimals: 0,
  numbers: 'sequence',
  interfaces: ['src5'],
} as const;
const erc1155 = {
  ...base,
  standard: 'erc1155',
  decimals: 0,
  numbers: 'sequence',
  interfaces: ['src5'],
} as const;

const own = (key: string) => feltOfText(`token:${key}`);

/**
 * The tokens of the simulated network. The first six stand at their mainnet addresses; the others have addresses made
 * from their key, the same for every seed.
 */
const tokenSpecs: readonly TokenSpec[] = [
  {
    ...erc20,
    key: 'strk',
    address: 0x04718f5a0fc34cc1af16a1cdee98ffb20c31f5cd61d6ab07201858f4287c938dn,
    name: felt('Starknet Token'),
    symbol: felt('STRK'),
    layouts: ['erc20:3/2'],
    upgrade: { height: 64, before: ['erc20:1/4'] },
    notes: 1500,
  },
  {
    ...erc20,
    key: 'eth',
    address: 0x049d36570d4e46f48e99674bd3fcc84644ddd6b96f7c741b1562b82f9e004dc7n,
    name: felt('Ether'),
    symbol: felt('ETH'),
    layouts: ['erc20:1/4'],
    notes: 1200,
  },
  {
    ...erc20,
    key: 'usdc',
    address: 0x053c91253bc9682c04929ca02ed00b3e423f6710d2ee7e0d5ebb06f3ecf368a8n,
    name: felt('USD Coin'),
    symbol: felt('USDC'),
    decimals: 6,
    layouts: ['erc20:3/2'],
    notes: 1200,
  },
  {
    ...erc20,
    key: 'usdt',
    address: 0x068f5c6a61780768455de69077e07e89787839bf8166decfbf92b645209c0fb8n,
    name: felt('Tether USD'),
    symbol: felt('USDT'),
    decimals: 6,
    layouts: ['erc20:1/4'],
    form: 'sierra-flat',
    naming: 'camel',
    notes: 500,
  },
  {
    ...erc20,
    key: 'dai',
    address: 0x00da114221cb83fa859dbdb4c44beeaa0bb37c7537ad5ae66fe5e0efd20e6eb3n,
    name: felt('Dai Stablecoin'),
    symbol: felt('DAI'),
    layouts: ['erc20:1/4'],
    form: 'cairo0',
    naming: 'camel',
    notes: 300,
  },
  {
    ...erc20,
    key: 'wbtc',
    address: 0x03fe2b97c1fd336e750087d68b9b867997fd64a2661ff3ca5a7c771641e8e7acn,
    name: felt('Wrapped BTC'),
    symbol: felt('WBTC'),
    decimals: 8,
    layouts: ['erc20:1/4', 'erc20:3/2'],
    notes: 200,
  },
  {
    ...erc20,
    key: 'keyed',
    address: own('keyed'),
    name: bytes('All Keyed'),
    symbol: bytes('KEYS'),
    layouts: ['erc20:5/0'],
    naming: 'snake',
    numbers: 'beyond-128-bits',
    notes: 120,
  },
  {
    ...erc20,
    key: 'felt-data',
    address: own('felt-data'),
    name: felt('Felt Amounts'),
    symbol: felt('FELT'),
    layouts: ['erc20:3/1'],
    naming: 'snake',
    notes: 120,
  },
  {
    ...erc20,
    key: 'felt-cairo0',
    address: own('felt-cairo0'),
    name: felt('Old Felt Coin'),
    symbol: felt('OFC'),
    decimals: 6,
    layouts: ['erc20:1/3'],
    form: 'cairo0',
    naming: 'camel',
    notes: 120,
  },
  {
    ...erc20,
    key: 'felt-keyed',
    address: own('felt-keyed'),
    name: bytes('Keyed Felt Amounts'),
    symbol: bytes('KFA'),
    layouts: ['erc20:4/0'],
    naming: 'snake',
    notes: 120,
  },
  {
    ...erc20,
    key: 'silent',
    address: own('silent'),
    name: bytes('Amounts Left Out'),
    symbol: bytes('NIL'),
    layouts: ['erc20:3/0'],
    naming: 'snake',
    numbers: 'zero',
    notes: 60,
  },
  {
    ...erc20,
    key: 'component',
    address: own('component'),
    name: bytes('A Component Token Whose Name Does Not Fit Into One Felt, Nor Into Two: \u{1f680}'),
    symbol: bytes('COMPONENT-WITH-A-SYMBOL-BEYOND-31-BYTES'),
    layouts: ['erc20:component', 'erc20:component-data'],
    naming: 'snake',
    notes: 120,
  },
  {
    ...erc20,
    key: 'hostile',
    address: own('hostile'),
    name: bytes(`<script>alert("x")</script>'; DROP TABLE tokens; --\u{1f98a}\u202egnp.exe`),
    symbol: bytes('"\u0000\\\u{1f4a9}'),
    layouts: ['erc20:3/2'],
    notes: 120,
  },
  {
    ...erc20,
    key: 'hostile-felt',
    address: own('hostile-felt'),
    name: { as: 'felt', bytes: Buffer.from([0x41, 0x00, 0x42, 0xff, 0xfe, 0x22, 0x27]) },
    symbol: felt('<b>\u05d0\u202e'),
    layouts: ['erc20:1/4'],
    form: 'cairo0',
    naming: 'camel',
    decimals: 77,
    notes: 60,
  },
  {
    ...erc20,
    key: 'nameless',
    address: own('nameless'),
    name: { as: 'revert', reason: 'Name not set' },
    symbol: { as: 'revert', reason: 'Symbol not set' },
    layouts: ['erc20:3/2'],
    notes: 80,
  },
  {
    ...erc20,
    key: 'decimals-only',
    address: own('decimals-only'),
    name: felt(''),
    symbol: felt(''),
    decimals: 9,
    layouts: ['erc20:1/4'],
    form: 'proxy',
    answers: ['decimals'],
    notes: 100,
  },
  {
    ...erc20,
    key: 'untold',
    standard: 'unknown',
    address: own('untold'),
    name: felt('Untold'),
    symbol: felt('?'),
    layouts: ['erc20:1/4', 'erc20:5/0'],
    form: 'proxy',
    answers: [],
    notes: 100,
  },
  {
    ...erc721,
    key: 'foxes',
    address: own('foxes'),
    name: bytes('Seeded Foxes'),
    symbol: bytes('FOX'),
    layouts: ['erc721:5/0'],
    uri: 'ipfs',
    notes: 400,
  },
  {
    ...erc721,
    key: 'ducks-cairo0',
    address: own('ducks-cairo0'),
    name: felt('Ducks Everywhere'),
    symbol: felt('DUCK'),
    layouts: ['erc721:1/4'],
    form: 'cairo0',
    naming: 'camel',
    interfaces: ['legacy'],
    uri: 'felts',
    notes: 250,
  },
  {
    ...erc721,
    key: 'domains',
    address: own('domains'),
    name: felt('Names'),
    symbol: felt('NAME'),
    layouts: ['erc721:1/3'],
    form: 'cairo0',
    naming: 'camel',
    numbers: 'felt-ids',
    interfaces: ['legacy'],
    uri: 'doubled',
    notes: 150,
  },
  {
    ...erc721,
    key: 'felt-keyed-nft',
    address: own('felt-keyed-nft'),
    name: bytes('Keyed Felts'),
    symbol: bytes('KFN'),
    layouts: ['erc721:4/0'],
    naming: 'snake',
    numbers: 'felt-ids',
    uri: 'data',
    notes: 120,
  },
  {
    ...erc721,
    key: 'wide-nft',
    address: own('wide-nft'),
    name: bytes('Wide Ids'),
    symbol: bytes('WIDE'),
    layouts: ['erc721:component'],
    naming: 'snake',
    numbers: 'wide-ids',
    uri: 'data',
    notes: 120,
  },
  {
    ...erc721,
    key: 'proxied-nft',
    address: own('proxied-nft'),
    name: felt('Behind A Proxy'),
    symbol: felt('PRXY'),
    layouts: ['erc721:1/4', 'erc721:5/0'],
    form: 'proxy',
    interfaces: ['src5', 'legacy'],
    uri: 'revert',
    notes: 150,
  },
  {
    ...erc1155,
    key: 'items',
    address: own('items'),
    name: bytes('Game Items'),
    symbol: bytes('ITEM'),
    layouts: ['erc1155:4/4'],
    batchLayout: 'erc1155:batch',
    uri: 'ipfs',
    notes: 250,
  },
  {
    ...erc1155,
    key: 'items-legacy',
    address: own('items-legacy'),
    name: felt('Old Items'),
    symbol: felt('OITM'),
    layouts: ['erc1155:1/7'],
    batchLayout: 'erc1155:legacy-batch',
    form: 'cairo0',
    naming: 'camel',
    interfaces: ['legacy'],
    uri: 'placeholder',
    notes: 180,
  },
  {
    ...erc1155,
    key: 'items-felt',
    address: own('items-felt'),
    name: bytes('Felt Items'),
    symbol: bytes('FITM'),
    layouts: ['erc1155:4/2'],
    batchLayout: 'erc1155:batch',
    naming: 'snake',
    numbers: 'felt-ids',
    uri: 'data',
    notes: 120,
  },
  {
    ...erc1155,
    key: 'items-component',
    address: own('items-component'),
    name: bytes('Component Items'),
    symbol: bytes('CITM'),
    layouts: ['erc1155:component'],
    batchLayout: 'erc1155:component-batch',
    naming: 'snake',
    numbers: 'wide-ids',
    uri: 'revert',
    notes: 120,
  },
];

/** Token 0 pays v3 fees, token 1 the older ones. */
export const STRK = 0;
export const ETH = 1;

export const tokens: readonly Token[] = tokenSpecs.map((spec, index) => ({
  ...spec,
  index,
  hex: hexOf(spec.address),
}));

const byAddress: ReadonlyMap<bigint, Token> = new Map(tokens.map((token) => [token.address, token]));

export function tokenAt(address: bigint): Token | null {
  return byAddress.get(address) ?? null;
}

/** The layout of one event of a token, drawn from `chance`. */
export function layoutOf(token: Token, height: number, chance: number, batch: boolean): Layout {
  if (batch && token.batchLayout !== undefined) return token.batchLayout;
  const layouts =
    token.upgrade !== undefined && height < token.upgrade.height ? token.upgrade.before : token.layouts;
  const layout = layouts[chance % layouts.length];
  if (layout === undefined) throw new RangeError(`${token.key} has no layout`);
  return layout;
}

/** A number of up to 256 bits from words. */
export function wideNumber(seed: number, a: number, b: number): bigint {
  let value = 0n;
  for (let i = 0; i < 8; i++) value = (value << 32n) | BigInt(mix(seed + i, a, b, 0x1d5));
  return value;
}
