/** sn_keccak of the names; a unit test compares them with the `starknet` package. */
export const selectors = {
  Transfer: '0x99cd8bde557814842a3121e8ddfd433a539b8c9f14bf31ebf108d12e6196e9',
  TransferSingle: '0x182d859c0807ba9db63baf8b9d9fdbfeb885d820be6e206b9dab626d995c433',
  TransferBatch: '0x2563683c757f3abe19c4b7237e2285d8993417ddffe0b54a19eb212ea574b08',
  Approval: '0x134692b230b9e1ffa39098904722134159652b09c5bc41d88d6698779d228ff',
  ERC20Event: '0x166373381772db0a01c3a66865fc326c297787697aa52a6ea318e38c42302f7',
  ERC721Event: '0xa10621c8d1049902a6a0815eb597e033c5f5e05f42185ef212e875d68cf7be',
  ERC1155Event: '0x86a9fda6805aad96ad82e284d44197657d462eee717ec0e6f6c3d70a29279f',
  transaction_executed: '0x5ad857f66a5b55f1301ff1ed7e098ac6d4433148f0b72ebc4a2945ab85ad53',
  Swap: '0xe316f0d9d2a3affa97de1d99bb2aac0538e2666d0d8545545ead241ef0ccab',
  Sync: '0xe14a408baf7f453312eec68e9b7d728ec5337fbdf671f917ee8c80f3255232',
  Upgraded: '0x2db340e6c609371026731f47050d3976552c89b4fbb012941663841c59d1af3',
  deposit_handled: '0x221e5a5008f7a28564f0eaa32cdeb0848d10657c449aed3e15d12150a7c2db3',
  handle_deposit: '0x2d757788a8d8d6f21d1cd40bce38a8222d70654214e96ff95d8086e684fbee5',
  name: '0x361458367e696363fbcc70777d07ebbd2394e89fd0adcaf147faccd1d294d60',
  symbol: '0x216b05c387bab9ac31918a3e61672f4618601f3c598a2f3f2710f37053e1ea4',
  decimals: '0x4c4fb1ab068f6039d5780c68dd0fa2f8742cceb3426d19667778ca7f3518a9',
  balance_of: '0x35a73cd311a05d46deda634c5ee045db92f811b4e74bca4437fcb5302b7af33',
  balanceOf: '0x2e4263afad30923c891518314c3c95dbe830a16874e8abc5777a9a20b54c76e',
  total_supply: '0x1557182e4359a1f0c6301278e8f5b35a776ab58d39892581e357578fb287836',
  totalSupply: '0x80aa9fdbfaf9615e4afc7f5f722e265daca5ccc655360fa5ccacf9c267936d',
  owner_of: '0x3552df12bdc6089cf963c40c4cf56fbfd4bd14680c244d1c5494c2790f1ea5c',
  ownerOf: '0x2962ba17806af798afa6eaf4aa8c93a9fb60a3e305045b6eea33435086cae9',
  token_uri: '0x226ad7e84c1fe08eb4c525ed93cccadf9517670341304571e66f7c4f95cbe54',
  tokenURI: '0x12a7823b0c6bee58f8c694888f32f862c6584caa8afa0242de046d298ba684d',
  uri: '0x2ee3279dd30231650e0b4a1a3516ab3dc26b6d3dfcb6ef20fb4329cfc1213e1',
  supports_interface: '0xfe80f537b66d12a00b6d3c072b44afbb716e78dde5c3f0ef116ee93d3e3283',
  supportsInterface: '0x29e211664c0b63c79638fbea474206ca74016b3e9a3dc4f9ac300ffd8bdf2cd',
  transfer: '0x83afd3f4caedc6eebf44246fe54e38c95e3179a5ec9ea81740eca5b482d12e',
  transfer_from: '0x3704ffe8fba161be0e994951751a5033b1462b918ff785c0a636be718dfdb68',
  transferFrom: '0x41b033f4a31df8067c24d1e9b550a2ce75fd4a29e1147af9752174f0e6cb20',
  approve: '0x219209e083275171774dab1df80982e9df2096516f06319c5c6d71ae0a8480c',
  safe_transfer_from: '0x16f0218b33b5cf273196787d7cf139a9ad13d58e6674dcdce722b3bf8389863',
  safeTransferFrom: '0x19d59d013d4aa1a8b1ce4c8299086f070733b453c02d0dc46e735edc04d6444',
  safe_batch_transfer_from: '0x3556ee435402e506fc85acb898a9acb9daf2855fdec20673ec29a8cb1196cb7',
  safeBatchTransferFrom: '0x23cc35d21c405aa7adf1f3afcf558aec0dbe6a45cade725420609aef87e9035',
  __execute__: '0x15d40a3d6ca2ac30f4031e42be28da9b056fef9bb7357ac5e85627ee876e5ad',
  __default__: '0x2e4c01ac72b840834c6c3146a782496a90a442ac831e5188090c1d33a7c0f50',
} as const;

export type SelectorName = keyof typeof selectors;

const byValue: ReadonlyMap<string, string> = new Map(
  Object.entries(selectors).map(([name, value]) => [BigInt(value).toString(16), name]),
);

/** The name of an entry point or event; null if no simulated contract has it. */
export function selectorName(selector: bigint): string | null {
  return byValue.get(selector.toString(16)) ?? null;
}

/** SRC-5 ids (Cairo 1) and the ids of ERC-165 that Cairo 0 contracts answer to. */
export const interfaceIds = {
  src5: 0x3f918d17e5ee77373b56385708f855659a07f75997f365cf87748628532a055n,
  erc165: 0x01ffc9a7n,
  erc721: 0x33eb2f84c309543403fd69f0d0f363781ef06ef6faeb0131ff16ea3175bd943n,
  erc721Legacy: 0x80ac58cdn,
  erc1155: 0x6114a8f75559e1b39fcba08ce02961a1aa082d9256a158dd3e64964e4b1b52n,
  erc1155Legacy: 0xd9b67a26n,
} as const;
