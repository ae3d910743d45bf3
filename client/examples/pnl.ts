/** Profit and loss of an account since a time, fees included: `node pnl.ts 0xACCOUNT 2026-01-01T00:00:00Z`. */
import { ApiError, TokenDataClient } from 'token-data-service-client';

const { TDS_URL = 'http://127.0.0.1:8080', TDS_KEY = '' } = process.env;
const [account = '', start = ''] = process.argv.slice(2);
if (!/(Z|[+-]\d{2}:\d{2})$/.test(start))
  throw new Error('Give the start with its time zone: 2026-01-01T00:00:00Z');
const client = new TokenDataClient({ baseUrl: TDS_URL, apiKey: TDS_KEY });
const valueAt = async (at: { at_time?: string }): Promise<number> =>
  (await client.getPortfolio({ query: { account_address: account, ...at } })).data.total_usd;

let [invested, unpriced] = [0, 0];
for await (const row of client.transfers.iterate({ account, start_time: start, order: 'asc' })) {
  if (row.is_fee || row.token_decimals === null || row.from_address === row.to_address) continue;
  const query = { token_address: row.token_address, at_time: row.timestamp };
  const price = await client.getPriceAt({ query }).catch((error: unknown) => {
    if (error instanceof ApiError && error.status === 404) return null;
    throw error;
  });
  const usd = (Number(row.amount) / 10 ** row.token_decimals) * (price?.data.price_usd ?? 0);
  invested += BigInt(row.to_address) === BigInt(account) ? usd : -usd;
  if (price === null) unpriced += 1;
}
// The transfers of the block at the start count as in or out, so its balances do not count as held before.
const justBefore = new Date(Date.parse(start) - 1).toISOString();
const [before, now] = await Promise.all([valueAt({ at_time: justBefore }), valueAt({})]);
console.log(`value ${before.toFixed(2)} → ${now.toFixed(2)} USD, in and out ${invested.toFixed(2)} USD`);
console.log(`profit and loss ${(now - before - invested).toFixed(2)} USD`);
if (unpriced > 0) console.log(`${unpriced} transfers of tokens without a price then are left out`);
