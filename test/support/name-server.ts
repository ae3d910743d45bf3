import { createSocket } from 'node:dgram';
import { once } from 'node:events';

import { decode, encode } from 'dns-packet';

/** The answer for a name: its addresses, or `silent` for none. */
export type Known = readonly string[] | 'silent';

export interface NameServer {
  /** `ip:port` */
  readonly address: string;
  close(): Promise<void>;
}

/** A DNS server on loopback (UDP) that looks up the answer at every query. */
export async function startNameServer(addressesOf: (name: string) => Known): Promise<NameServer> {
  const socket = createSocket('udp4');
  socket.on('message', (message, { port, address }) => {
    const { id, questions = [] } = decode(message);
    const [question] = questions;
    const known = question === undefined ? [] : addressesOf(question.name.toLowerCase());
    if (question === undefined || known === 'silent') return;
    const { name } = question;
    const answers = known.flatMap((data) => {
      const type = data.includes(':') ? ('AAAA' as const) : ('A' as const);
      return type === question.type ? [{ type, name, data, ttl: 0 }] : [];
    });
    const nxdomain = known.length === 0 ? 3 : 0;
    socket.send(
      encode({ type: 'response', id: id ?? 0, flags: 0x180 | nxdomain, questions, answers }),
      port,
      address,
    );
  });
  socket.bind(0, '127.0.0.1');
  await once(socket, 'listening');
  return {
    address: `127.0.0.1:${socket.address().port}`,
    close: async () => {
      socket.close();
      await once(socket, 'close');
    },
  };
}
