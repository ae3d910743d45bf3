import type Router from '@koa/router';

import type { RequestState } from '../http/request-state.ts';
import { shareRecent } from '../http/share-recent.ts';

/** The answer of /readyz: 200 when ok, else 503; the body says what is behind, and by how much. */
export interface Readiness {
  readonly ok: boolean;
  readonly body: Readonly<Record<string, unknown>>;
}

export interface HealthDeps {
  readonly readiness: () => Promise<Readiness>;
  /** The answer of GET /metrics; absent: no such path. */
  readonly metricsText?: (() => Promise<{ contentType: string; text: string }>) | undefined;
}

/** Longest time for which a collected answer is sent again: these paths need no log-in, and collecting reads all stores. */
const MAX_AGE_MS = 1000;

/** Adds the paths for operators, outside the contract: /healthz, /readyz, /metrics. */
export function mountHealth(router: Router<RequestState>, deps: HealthDeps): void {
  const readiness = shareRecent(deps.readiness, MAX_AGE_MS);
  router.get('/healthz', (context) => {
    context.state.path = '/healthz';
    context.body = { status: 'ok' };
  });
  router.get('/readyz', async (context) => {
    context.state.path = '/readyz';
    const { ok, body } = await readiness();
    context.status = ok ? 200 : 503;
    if (!ok) context.set('Retry-After', '5');
    context.body = body;
  });
  if (deps.metricsText === undefined) return;
  const metricsText = shareRecent(deps.metricsText, MAX_AGE_MS);
  router.get('/metrics', async (context) => {
    context.state.path = '/metrics';
    const { contentType, text } = await metricsText();
    context.type = contentType;
    context.body = text;
  });
}
