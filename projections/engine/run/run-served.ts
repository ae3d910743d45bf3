import type { Alarms } from '../../../infra/health/alarms.ts';
import type { Releasers } from '../../../infra/lifecycle.ts';
import type { Logger } from '../../../infra/log.ts';
import type { Pool } from '../../../infra/postgres/client.ts';
import { createRetryWhileUnavailable } from '../../../infra/retry-while-unavailable.ts';
import { pollUntil } from '../../../infra/retry.ts';
import { AppError } from '../../../schemas/errors.ts';
import { isInsertedLast } from '../../define.ts';
import type { Projection } from '../../define.ts';
import { needsRebuild, servedBuild } from '../builds.ts';
import type { ProjectionRun } from './lifetime.ts';

interface RunServedDeps {
  readonly log: Logger;
  readonly releasers: Pick<Releasers, 'push'>;
  /** Called once when a run fails. */
  readonly fail: (error: unknown) => void;
  readonly pool: Pool;
  readonly alarms: Alarms;
  /** Interval of looking whether a projection was rebuilt. */
  readonly pollMs?: number;
}

/** A run of the projections that are served in this program's version; the outdated ones do not run. */
interface Round<P> {
  readonly run: ProjectionRun | null;
  readonly outdated: readonly P[];
  /** Details by name. */
  readonly alarms: ReadonlyMap<string, string>;
}

/**
 * Runs projections together, except those that are served in another version: they do not run, with an alarm, until they
 * are rebuilt, and then join. Projections that say what is indexed are held with them, so that they never lead. Resolves when
 * the others run.
 */
export async function runServed<P extends Projection>(
  projections: readonly P[],
  run: (together: readonly P[]) => Promise<ProjectionRun>,
  deps: RunServedDeps,
): Promise<void> {
  const { pool, log, alarms, releasers, fail, pollMs = 10_000 } = deps;
  const stopping = new AbortController();
  const { signal } = stopping;
  const retryWhileUnavailable = createRetryWhileUnavailable({ component: 'project', signal, log });

  const raise = async (raised: Round<P>['alarms']): Promise<void> => {
    for (const [name, detail] of raised) await alarms.raise(name, detail);
  };
  const startRound = async (): Promise<Round<P>> => {
    const { current, ...held } = await splitByVersion(projections, deps);
    await raise(held.alarms);
    return { run: current.length === 0 ? null : await run(current), ...held };
  };
  /** Resolves when an outdated projection was rebuilt, or a running one was swapped to another version. */
  const ended = async ({ run: running, outdated, alarms: raised }: Round<P>): Promise<void> => {
    const swapped = running?.done.catch((error: unknown) => {
      if (!(error instanceof AppError) || error.code !== 'VERSION_MISMATCH') throw error;
    });
    const isRebuilt = async (): Promise<boolean> => {
      const isOutdated = await Promise.all(outdated.map((one) => needsRebuild(pool, one)));
      // An older process that starts has cleared them, or PostgreSQL has lost them in a fail-over.
      if (!isOutdated.includes(false)) await raise(raised);
      return isOutdated.includes(false);
    };
    if (outdated.length === 0) return await swapped;
    const polling = new AbortController();
    const rebuilt = pollUntil(
      () => retryWhileUnavailable(isRebuilt),
      (is) => is,
      { everyMs: pollMs, withinMs: Infinity, signal: AbortSignal.any([signal, polling.signal]) },
    );
    // Awaited below; a stop may reject it before.
    rebuilt.catch(() => {});
    try {
      await Promise.race(swapped === undefined ? [rebuilt] : [swapped, rebuilt]);
    } finally {
      polling.abort();
      await rebuilt.catch(() => {});
    }
  };

  let round = await startRound();
  const follow = async (): Promise<void> => {
    while (!signal.aborted) {
      await ended(round);
      await round.run?.stop();
      if (!signal.aborted) round = await retryWhileUnavailable(startRound);
    }
  };
  const following = follow().catch((error: unknown) => {
    if (!signal.aborted) fail(error);
  });
  releasers.push('projections', async () => {
    stopping.abort();
    await round.run?.stop();
    // A round that was being started meanwhile is stopped, too.
    await following;
    await round.run?.stop();
    // Perhaps nothing waits for a rebuild any more, as after a rollback; a process that still does raises them again.
    if (round.alarms.size > 0) await alarms.clear([...round.alarms.keys()]).catch(() => {});
  });
}

const alarmOf = ({ name }: Projection): string => `projection.outdated:${name}`;

/** The command that builds and swaps these projections together. */
export function rebuildOf(projections: readonly { readonly name: string }[]): string {
  return `tds rebuild ${projections.map(({ name }) => name).join(' ')}`;
}

async function splitByVersion<P extends Projection>(
  projections: readonly P[],
  { pool, alarms, log }: RunServedDeps,
): Promise<Omit<Round<P>, 'run'> & { readonly current: P[] }> {
  const [current, outdated]: [P[], P[]] = [[], []];
  const older: { readonly projection: P; readonly served: number | null }[] = [];
  let isHeld = false;
  for (const projection of projections) {
    if (!(await needsRebuild(pool, projection))) {
      current.push(projection);
      continue;
    }
    outdated.push(projection);
    const { name, version } = projection;
    const served = await servedBuild(pool, projection);
    isHeld ||= served !== null;
    if (served !== null && served.version > version) {
      // In a rolling upgrade another process runs it.
      log.warn(
        { projection: name, served: served.version, version },
        'projection not started: a newer version is served',
      );
    } else {
      older.push({ projection, served: served?.version ?? null });
    }
  }
  const command = rebuildOf(older.map(({ projection }) => projection));
  const raised = new Map<string, string>();
  for (const { projection, served } of older) {
    const { name, version } = projection;
    log.error({ projection: name, served, version }, `projection not started: run \`${command}\``);
    const found = served === null ? 'not built' : `served in version ${served}`;
    const detail = `${name} is ${found}, this program writes version ${version}`;
    raised.set(alarmOf(projection), `${detail}: run \`${command}\``);
  }
  await alarms.clear(current.map(alarmOf));
  const running = isHeld ? current.filter((one) => !isInsertedLast(one)) : current;
  return { current: running, outdated, alarms: raised };
}
