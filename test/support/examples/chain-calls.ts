import { eventually } from '../service.ts';
import type { SimulatedService } from '../simulated-service.ts';
import type { Recorder } from './recorder.ts';
import { ETH, hour } from './values.ts';
import type { Json } from './values.ts';

/** Calls of what is read of the chain. */

/** An account of the newest transfers with a value, a history, and an NFT whose image is known and whose id is short. */
async function findAccount({ service }: SimulatedService): Promise<Found> {
  const get = async (path: string): Promise<Json> => (await service.get(path)).json;
  const { results } = await get(`/api/transfers/?token=${ETH}&limit=100`);
  const accounts = new Set<string>(results.map(({ from_address: from }: Json) => from));
  for (const account of accounts) {
    const { data: owned = [] } = await get(`/api/nft/owned-by/?account_address=${account}`);
    const nft = owned.find(
      ({ image, nft_token_id: id }: Json) => typeof image === 'string' && id.length < 10,
    );
    if (nft === undefined) continue;
    const { data: portfolio } = await get(`/api/portfolio/?account_address=${account}`);
    const query = `account_address=${account}&token_address=${ETH}&start_time=2026-01-01`;
    const { count } = await get(`/api/balance-history/?${query}`);
    if (portfolio.total_usd > 0 && count > 0) return { account, nft };
  }
  throw new Error('no account has a value, a history and an NFT with an image');
}
interface Found {
  readonly account: string;
  readonly nft: { readonly token_address: string; readonly nft_token_id: string };
}
export async function callChain(simulated: SimulatedService, { ask }: Recorder): Promise<void> {
  const { account, nft } = await eventually(() => findAccount(simulated), 60_000, 500);
  const pair = { account_address: account, token_address: ETH };
  const period = { start_time: hour(-5), end_time: hour(0) };
  const ofNft = { token_address: nft.token_address, nft_token_id: nft.nft_token_id };
  const { json: list } = await ask('listTransfers', { query: { account, token: ETH } });
  const [{ txhash, event_index: index, block }] = list.results;
  await ask('getTransferProof', { query: { txhash, event_index: String(index) } });
  await ask('listEvents', { query: { txhash } });
  await ask('traceTransfers', { query: { account, token: ETH, skip_zero: 'true' } });
  const stream = { token: ETH, from: '0', limit: '3', wait: '0' };
  await ask('streamTransfers', { query: stream });
  await ask('getBalance', { query: pair });
  await ask('getBalances', { body: { balances: [pair, { ...pair, account_address: 'bob' }] } });
  await ask('getAccountBalances', { query: { account_address: account } });
  await ask('getBalanceHistory', { query: { ...pair, ...period } });
  await ask('getBalanceHistory', { query: { ...pair, ...period, format: 'csv' } });
  await ask('getPortfolio', { query: { account_address: account } });
  await ask('getPortfolioHistory', { query: { account_address: account, ...period } });
  await ask('getPortfolioHistory', { query: { account_address: account, ...period, format: 'csv' } });
  await ask('getPrice', { query: { token_address: ETH } });
  await ask('getPrices', { body: { token_addresses: [ETH] } });
  await ask('getPriceAt', { query: { token_address: ETH, at_time: hour(0) } });
  await ask('getPriceHistory', { query: { token_address: ETH, ...period } });
  await ask('getPriceHistory', { query: { token_address: ETH, ...period, format: 'csv' } });
  await ask('listTokens', { query: { verified: 'true', search: 'ether' } });
  await ask('getToken', { path: { address: ETH } });
  await ask('listTokenHolders', { path: { address: ETH } });
  await ask('getTokenStats', { path: { address: ETH } });
  await ask('getChainStats');
  await ask('getAccountStats', { path: { address: account } });
  await ask('getNftMetadata', { query: ofNft });
  await ask('getNftCollection', { query: { token_address: nft.token_address } });
  await ask('getNftOwner', { query: ofNft });
  const ofCollection = { account_address: account, token_address: nft.token_address };
  await ask('listNftsOwnedBy', { query: ofCollection });
  await ask('getProgress');
  await ask('getVerification');
  await ask('getBlock', { path: { block: String(block) } });
}

/** The first events of a stream, which does not end by itself. */
export async function callEventStream(
  { service: { baseUrl, demo } }: SimulatedService,
  { keepText }: Recorder,
): Promise<void> {
  const answer = await fetch(`${baseUrl}/api/stream/transfers/?token=${ETH}&from=0`, {
    headers: { 'api-key': demo.api_key, accept: 'text/event-stream' },
  });
  const reader = answer.body?.pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  while (text.split('\n\n').length < 3) text += (await reader?.read())?.value ?? '';
  await reader?.cancel();
  keepText(
    'streamTransfers',
    'text/event-stream',
    text
      .split(/(?<=\n\n)/)
      .slice(0, 2)
      .join(''),
  );
}

export async function callExports({ ask, refused }: Recorder, build: () => Promise<void>): Promise<void> {
  const range = { from_block: '0', to_block: '3' };
  const { headers } = await ask('exportTransfers', { path: { format: 'csv' }, query: range });
  await ask('exportTransfers', { path: { format: 'ndjson' }, query: range });
  await ask('getExport', { path: { id: headers.get('x-export-id') ?? '' } });
  await build();
  const { json } = await ask('getExportManifest');
  const path = { name: String(json.files[0].url).split('/').at(-1) ?? '' };
  await ask('getExportFile', { path });
  await ask('getExportFile', { path, headers: { range: 'bytes=0-3' }, status: 206 });
  await refused('getExportFile', { path, headers: { 'if-match': '"other"' }, status: 412 });
  await refused('getExportFile', { path, headers: { range: 'bytes=99999999-' }, status: 416 });
}
