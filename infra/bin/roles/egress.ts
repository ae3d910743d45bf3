import { createEgress } from '../../../pipeline/egress/egress.ts';
import type { Egress } from '../../../pipeline/egress/egress.ts';
import type { Config } from '../../config.ts';
import type { Releasers } from '../../lifecycle.ts';
import { parseSentinelUrl } from '../../redis/sentinel.ts';

/** Outgoing HTTP to URLs of users: one policy for checking and for calling them. */
export function openEgress(config: Config, releasers: Releasers): Egress {
  const egress = createEgress({
    allowNetworks: config.webhookAllowNetworks,
    ownPorts: ownPorts(config),
    dnsServers: config.egressDnsServers,
  });
  releasers.push('egress', () => egress.close());
  return egress;
}

/** HTTP's default ports are not listed: webhooks listen there. */
const DEFAULT_PORTS: Readonly<Record<string, number>> = {
  'postgres:': 5432,
  'postgresql:': 5432,
  'redis:': 6379,
  'rediss:': 6379,
};

/** The Sentinels, and a master on the default port, in place of their URL. */
function redisUrls(redisUrl: string | null): (string | null)[] {
  const sentinel = redisUrl === null ? null : parseSentinelUrl(redisUrl);
  if (sentinel === null) return [redisUrl];
  return ['redis://master', ...sentinel.sentinels.map(({ port }) => `redis://sentinel:${port}`)];
}

/** Ports of the service, its stores and its sources, which webhooks must not reach. */
export function ownPorts(config: Config): number[] {
  const urls = [
    config.starknetRpcUrl,
    config.starknetWsUrl,
    config.clickhouseUrl,
    config.apiClickhouseUrl,
    config.databaseUrl,
    config.apiDatabaseUrl,
    ...redisUrls(config.redisUrl),
    config.priceFeedUrl,
    config.tokenListUrl,
    config.ipfsGatewayUrl,
    ...config.kafkaBrokers.map((broker) => `kafka://${broker}`),
  ];
  const ports = urls
    .filter((url) => url !== null)
    .map((url) => new URL(url))
    .map(({ port, protocol }) => (port === '' ? (DEFAULT_PORTS[protocol] ?? 0) : Number(port)));
  return [...new Set([...ports, config.port, config.metricsPort, ...config.ownPorts])].filter(
    (port) => port !== 0,
  );
}
