/** Hand-written ABIs in the formats of both compilers, modelled on OpenZeppelin's presets. */

type Names = readonly string[];

export const fn = (name: string, ...inputs: Names) => ({
  type: 'function',
  name,
  inputs: inputs.map((input) => ({ name: input, type: 'core::felt252' })),
  outputs: [],
  state_mutability: 'view',
});

const component = {
  erc20: {
    path: 'openzeppelin_token::erc20',
    name: 'ERC20',
    functions: [
      fn('name'),
      fn('symbol'),
      fn('decimals'),
      fn('total_supply'),
      fn('balance_of', 'account'),
      fn('allowance', 'owner', 'spender'),
      fn('transfer', 'recipient', 'amount'),
      fn('transfer_from', 'sender', 'recipient', 'amount'),
      fn('approve', 'spender', 'amount'),
    ],
    event: 'Transfer',
  },
  erc721: {
    path: 'openzeppelin_token::erc721',
    name: 'ERC721',
    functions: [
      fn('balance_of', 'account'),
      fn('owner_of', 'token_id'),
      fn('safe_transfer_from', 'from', 'to', 'token_id', 'data'),
      fn('transfer_from', 'from', 'to', 'token_id'),
      fn('approve', 'to', 'token_id'),
      fn('set_approval_for_all', 'operator', 'approved'),
      fn('name'),
      fn('symbol'),
      fn('token_uri', 'token_id'),
    ],
    event: 'Transfer',
  },
  erc1155: {
    path: 'openzeppelin_token::erc1155',
    name: 'ERC1155',
    functions: [
      fn('balance_of', 'account', 'token_id'),
      fn('balance_of_batch', 'accounts', 'token_ids'),
      fn('safe_transfer_from', 'from', 'to', 'token_id', 'value', 'data'),
      fn('safe_batch_transfer_from', 'from', 'to', 'token_ids', 'values', 'data'),
      fn('uri', 'token_id'),
    ],
    event: 'TransferSingle',
  },
} as const;

/** A Cairo 1 contract with one embedded component: functions in an interface, events by path and in two enums. */
export function sierraToken(standard: keyof typeof component): unknown[] {
  const { path, name, functions, event } = component[standard];
  return [
    { type: 'impl', name: `${name}MixinImpl`, interface_name: `${path}::interface::${name}ABI` },
    {
      type: 'struct',
      name: 'core::integer::u256',
      members: [{ name: 'low', type: 'core::integer::u128' }],
    },
    { type: 'interface', name: `${path}::interface::${name}ABI`, items: functions },
    { type: 'constructor', name: 'constructor', inputs: [] },
    { type: 'event', name: `${path}::component::${name}Component::${event}`, kind: 'struct', members: [] },
    {
      type: 'event',
      name: `${path}::component::${name}Component::Event`,
      kind: 'enum',
      variants: [{ name: event, type: `${path}::component::${name}Component::${event}`, kind: 'nested' }],
    },
    { type: 'event', name: 'my::Token::Event', kind: 'enum', variants: [] },
  ];
}

const old = (name: string, ...inputs: Names) => ({
  type: 'function',
  name,
  inputs: inputs.map((input) => ({ name: input, type: input.endsWith('Id') ? 'Uint256' : 'felt' })),
  outputs: [],
  stateMutability: 'view',
});
const oldEvent = (name: string) => ({ type: 'event', name, keys: [], data: [] });

export const cairo0Erc20: unknown[] = [
  { type: 'struct', name: 'Uint256', size: 2, members: [] },
  oldEvent('Transfer'),
  oldEvent('Approval'),
  { type: 'constructor', name: 'constructor', inputs: [], outputs: [] },
  old('name'),
  old('symbol'),
  old('decimals'),
  old('totalSupply'),
  old('balanceOf', 'account'),
  old('transfer', 'recipient', 'amount'),
  old('transferFrom', 'sender', 'recipient', 'amount'),
];

export const cairo0Erc721: unknown[] = [
  oldEvent('Transfer'),
  old('supportsInterface', 'interfaceId'),
  old('name'),
  old('symbol'),
  old('balanceOf', 'owner'),
  old('ownerOf', 'tokenId'),
  old('transferFrom', 'from_', 'to', 'tokenId'),
  old('safeTransferFrom', 'from_', 'to', 'tokenId', 'data_len', 'data'),
  old('tokenURI', 'tokenId'),
];

export const cairo0Erc1155: unknown[] = [
  oldEvent('TransferSingle'),
  oldEvent('TransferBatch'),
  old('supportsInterface', 'interfaceId'),
  old('uri', 'tokenId'),
  old('balanceOf', 'account', 'tokenId'),
  old('balanceOfBatch', 'accounts_len', 'accounts', 'ids_len', 'ids'),
  old('safeTransferFrom', 'from_', 'to', 'tokenId', 'value', 'data_len', 'data'),
];

export const cairo0Proxy: unknown[] = [
  oldEvent('Upgraded'),
  oldEvent('AdminChanged'),
  {
    type: 'constructor',
    name: 'constructor',
    inputs: [{ name: 'implementation_hash', type: 'felt' }],
    outputs: [],
  },
  { ...old('__default__', 'selector', 'calldata_size', 'calldata'), outputs: [] },
  { type: 'l1_handler', name: '__l1_default__', inputs: [], outputs: [] },
];
