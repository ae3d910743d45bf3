/** Profit and loss of an account since a time: `node pnl.ts 0xACCOUNT 2026-01-01T00:00:00Z`. */
import { TokenDataClient } from 'token-data-service-client';

const { TDS_URL = 'http://127.0.0.1:8080', TDS_KEY = '' } = process.env;
const [account = '', start = ''] = process.argv.slice(2);
const client = new TokenDataClient({ baseUrl: TDS_URL, apiKey: TDS_KEY });

async function valueAt(time?: string): Promise<number> {
  const query = { account_address: account, ...(time === undefined ? {} : { at_time: time }) };
  return (await client.getPortfolio({ query })).data.total_usd;
}

let invested = 0;
for await (const transfer of client.transfers.iterate({ account, start_time: start, order: 'asc' })) {
  if (transfer.token_decimals === null || transfer.from_address === transfer.to_address) continue;
  const query = { token_address: transfer.token_address, at_time: transfer.timestamp };
  const price = await client.getPriceAt({ query }).then(
    ({ data }) => data.price_usd,
    () => 0,
  );
  const usd = (Number(transfer.amount) / 10 ** transfer.token_decimals) * price;
  invested += BigInt(transfer.to_address) === BigInt(account) ? usd : -usd;
}
const [before, now] = await Promise.all([valueAt(start), valueAt()]);
console.log(`value ${before.toFixed(2)} → ${now.toFixed(2)} USD, in and out ${invested.toFixed(2)} USD`);
console.log(`profit and loss ${(now - before - invested).toFixed(2)} USD`);
