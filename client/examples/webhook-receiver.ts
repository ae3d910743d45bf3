/** Receives webhooks, verifies them and prints each event once: `WEBHOOK_SECRET=whsec_… node webhook-receiver.ts 9000`. */
import { createServer } from 'node:http';
import { text } from 'node:stream/consumers';

import { verifyWebhook } from 'token-data-service-client';

const { WEBHOOK_SECRET = '' } = process.env;
const [port = '9000'] = process.argv.slice(2);
const seen = new Set<unknown>();

const server = createServer((request, response) => {
  const received = async (): Promise<number> => {
    const event = await verifyWebhook(await text(request), request.headers, WEBHOOK_SECRET);
    const id = request.headers['webhook-id'];
    if (!seen.has(id)) console.log(event.event, JSON.stringify(event.data));
    seen.add(id);
    return 204;
  };
  void received().then(
    (status) => response.writeHead(status).end(),
    (error: unknown) => response.writeHead(400).end(String(error)),
  );
});
server.listen(Number(port), '127.0.0.1', () => {
  const address = server.address();
  console.log(`listening on ${typeof address === 'object' ? address?.port : address}`);
});
