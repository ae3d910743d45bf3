import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { generate } from 'selfsigned';
import type { CertificateField } from 'selfsigned';

import { freePort } from '../../infra/embedded/ports.ts';
import { newClusterId, startBroker } from './kafka-cluster.ts';

export const USERNAME = 'tds';
export const PASSWORD = 'the-secret-of-tds';

/** A broker whose only listener for clients is SASL_SSL; it asks for a client certificate too where told so. */
export interface SecureKafka {
  readonly broker: string;
  /** PEM files: of the authority, and of a client certificate that it signed. */
  readonly ca: string;
  readonly clientCert: string;
  readonly clientKey: string;
  stop(): Promise<void>;
}

export async function startSecureKafka({
  expired,
  asksForCertificate = false,
}: { expired?: 'broker' | 'client'; asksForCertificate?: boolean } = {}): Promise<SecureKafka> {
  const folder = mkdtempSync(join(tmpdir(), 'tds-kafka-secure-'));
  const [port, plainPort, controllerPort] = [await freePort(), await freePort(), await freePort()];
  const file = (name: string, text: string): string => {
    const path = join(folder, name);
    writeFileSync(path, text, { mode: 0o600 });
    return path;
  };
  const authority = await generate(named('test authority'), {
    extensions: [
      { name: 'basicConstraints', cA: true },
      { name: 'keyUsage', keyCertSign: true, digitalSignature: true },
    ],
  });
  const signed = async (subject: 'broker' | 'client'): Promise<{ cert: string; private: string }> =>
    await generate(named(subject), {
      ca: { cert: authority.cert, key: authority.private },
      notBeforeDate: new Date(Date.now() - 10 * 86_400_000),
      notAfterDate: new Date(Date.now() + (subject === expired ? -1 : 10) * 86_400_000),
      extensions: [{ name: 'subjectAltName', altNames: [{ type: 7, ip: '127.0.0.1' }] }],
    });
  const broker = await signed('broker');
  const client = await signed('client');
  const ca = file('ca.pem', authority.cert);
  const listener = 'listener.name.sasl_ssl';
  const login = `username="${USERNAME}" password=${JSON.stringify(PASSWORD)}`;
  const service = await startBroker({
    id: 1,
    folder,
    clusterId: newClusterId(),
    controllerPorts: [controllerPort],
    port: plainPort,
    properties: {
      listeners: `SASL_SSL://127.0.0.1:${port},PLAINTEXT://127.0.0.1:${plainPort},CONTROLLER://127.0.0.1:${controllerPort}`,
      'advertised.listeners': `SASL_SSL://127.0.0.1:${port},PLAINTEXT://127.0.0.1:${plainPort}`,
      'listener.security.protocol.map': 'SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT',
      'inter.broker.listener.name': 'PLAINTEXT',
      'sasl.enabled.mechanisms': 'PLAIN,SCRAM-SHA-256,SCRAM-SHA-512',
      'offsets.topic.replication.factor': 1,
      'ssl.keystore.type': 'PEM',
      'ssl.keystore.location': file('broker.pem', `${broker.private}\n${broker.cert}`),
      'ssl.truststore.type': 'PEM',
      'ssl.truststore.location': ca,
      [`${listener}.ssl.client.auth`]: asksForCertificate ? 'required' : 'none',
      [`${listener}.plain.sasl.jaas.config`]: `org.apache.kafka.common.security.plain.PlainLoginModule required ${login} user_${USERNAME}=${JSON.stringify(PASSWORD)};`,
      [`${listener}.scram-sha-256.sasl.jaas.config`]:
        'org.apache.kafka.common.security.scram.ScramLoginModule required;',
      [`${listener}.scram-sha-512.sasl.jaas.config`]:
        'org.apache.kafka.common.security.scram.ScramLoginModule required;',
    },
    formatArgs: ['SCRAM-SHA-256', 'SCRAM-SHA-512'].flatMap((mechanism) => [
      '--add-scram',
      `${mechanism}=[name=${USERNAME},password=${PASSWORD}]`,
    ]),
  });
  return {
    broker: `127.0.0.1:${port}`,
    ca,
    clientCert: file('client.pem', client.cert),
    clientKey: file('client-key.pem', client.private),
    async stop() {
      await service.stop();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

function named(value: string): CertificateField[] {
  return [{ name: 'commonName', value }];
}
