import type { Role } from '../role.ts';

export const roles: readonly Role[] = [
  {
    name: 'ingest',
    summary: 'follow the chain and write its blocks to the log',
    load: async () => (await import('./ingest.ts')).start,
  },
  {
    name: 'project',
    summary:
      'project the log into read models (default: all); name all projections of chain.blocks or none of them',
    load: async () => (await import('./project.ts')).start,
  },
  {
    name: 'observe',
    summary: 'fetch token metadata, balances, prices and NFT metadata',
    load: async () => (await import('./observe.ts')).start,
  },
  {
    name: 'dispatch',
    summary: 'match events with webhook subscriptions and deliver them',
    load: async () => (await import('./dispatch.ts')).start,
  },
  {
    name: 'api',
    summary: 'serve the read models over HTTP',
    load: async () => (await import('./api.ts')).start,
  },
];
