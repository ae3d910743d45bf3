/** Prints large transfers of a token as they happen, and those that a reorg takes back: `node whale-alert.ts 0xTOKEN 1000`. */
import { TokenDataClient, formatAmount, parseAmount } from 'token-data-service-client';

const { TDS_URL = 'http://127.0.0.1:8080', TDS_KEY = '' } = process.env;
const [token = '', least = '1000'] = process.argv.slice(2);
const client = new TokenDataClient({ baseUrl: TDS_URL, apiKey: TDS_KEY });
const { symbol, decimals } = await client.getToken({ path: { address: token } });
const limit = parseAmount(least, decimals ?? 0);

for await (const { type, data } of client.stream({ token })) {
  if (type === 'transfer' && data.amount >= limit) {
    const amount = formatAmount(data.amount, decimals ?? 0);
    console.log(`block ${data.block}: ${amount} ${symbol} from ${data.from_address} to ${data.to_address}`);
  }
  if (type === 'undo') console.log(`blocks ${data.from} to ${data.to} no longer count`);
}
