import { SEQ_RESERVE } from '../../pipeline/ingest/lease.ts';
import { leaseLost } from '../../pipeline/ingest/ports.ts';
import type { Chunk, Fence, IngestStore, RecordedBlock } from '../../pipeline/ingest/ports.ts';
import { REPAIR_BACKOFF } from '../../pipeline/ingest/store/repairs.ts';
import type { Felt } from '../../schemas/felt.ts';
import { blockBody } from '../../schemas/messages/chain-blocks.ts';
import type { ContractsMap } from '../../schemas/messages/chain-blocks.ts';

interface Row {
  chunk: Omit<Chunk, 'lease'>;
  holder: string | null;
  epoch: number;
  until: number;
  ceiling: number;
  revision: number;
  recorded: Map<number, RecordedBlock & { intent: 'accept' | 'revert' }>;
}

interface RepairRow {
  readonly id: number;
  readonly height: number;
  round: number;
  reread: boolean;
  replacesOrphan: boolean;
  maps: ContractsMap[];
  done: boolean;
  attempts: number;
  nextTryAt: number;
}

export interface SimStore extends IngestStore {
  requestRepair(height: number, reread?: boolean, replacesOrphan?: boolean): void;
  readonly alarms: ReadonlyMap<string, string>;
  /** The revision of a chunk; throws `LEASE_LOST` if the epoch has ended, or the revision is lower than known. */
  revision(fence: Fence, known: number): number;
  pendingCount(): number;
  /** Name of the chunk that contains a height. */
  chunkAt(height: number): string;
  /** True if every chunk has published something. */
  isStarted(): boolean;
  /** True if every chunk is finished or has this cursor. */
  isAt(cursor: number): boolean;
  /** Copies the state. The result sets it back, as a fail-over that loses all transactions since. */
  snapshot(): () => void;
}

/**
 * The ingest store in memory, for fault injection. The SQL itself is tested on PostgreSQL (test/integration/pipeline).
 */
export function createSimStore(now: () => number): SimStore {
  let rows = new Map<string, Row>();
  let repairs: RepairRow[] = [];
  let alarms = new Map<string, string>();
  let chain: Felt | null = null;
  let announced: unknown = null;

  const fencedRow = ({ name, epoch }: Fence): Row => {
    const row = rows.get(name);
    if (row === undefined || row.epoch !== epoch) throw leaseLost({ name, epoch });
    row.revision += 1;
    return row;
  };
  const dueRepairs = (start: number, end: number | null): RepairRow[] =>
    repairs.filter(
      ({ done, nextTryAt, height }) =>
        !done && nextTryAt <= now() && height >= start && height <= (end ?? Infinity),
    );
  const copy = <T>(value: T): T => structuredClone(value);
  const chunkOf = ({ chunk, holder, until }: Row): Chunk => ({
    ...copy(chunk),
    lease: holder === null || until < now() ? null : { holder, until },
  });

  return {
    get alarms() {
      return alarms;
    },
    snapshot() {
      const stored = copy({ rows, repairs, alarms, chain, announced });
      return () => {
        ({ rows, repairs, alarms, chain, announced } = copy(stored));
      };
    },
    revision({ name, epoch }, known) {
      const row = rows.get(name);
      if (row === undefined || row.epoch !== epoch || row.revision < known) throw leaseLost({ name, epoch });
      return row.revision;
    },
    requestRepair(height, reread = false, replacesOrphan = false) {
      const pending = repairs.find((one) => one.height === height && !one.done);
      if (pending === undefined) {
        const repair = { id: repairs.length + 1, height, round: 1, reread, replacesOrphan };
        repairs.push({ ...repair, maps: [], done: false, attempts: 0, nextTryAt: now() });
      } else {
        Object.assign(pending, { attempts: 0, nextTryAt: now() });
        pending.round += 1;
        pending.reread ||= reread;
        pending.replacesOrphan ||= replacesOrphan;
      }
    },
    chunkAt(height) {
      const found = [...rows.values()].find(
        ({ chunk }) => height >= chunk.start && height <= (chunk.end ?? Infinity),
      );
      return found?.chunk.name ?? 'none';
    },
    isStarted: () => rows.size > 0 && [...rows.values()].every(({ chunk }) => chunk.cursor > chunk.start),
    isAt: (cursor) =>
      rows.size > 0 && [...rows.values()].every(({ chunk }) => chunk.finished || chunk.cursor === cursor),
    pendingCount: () => repairs.filter(({ done }) => !done).length,
    async storeChainId(chainId) {
      chain ??= chainId;
      return chain;
    },
    announcedCapabilities: async () => announced,
    async setAnnouncedCapabilities(what) {
      announced = copy(what);
    },
    chunks: async () => [...rows.values()].map(chunkOf),
    async createChunks(chunks) {
      const end = (one: { end: number | null }): number => one.end ?? Infinity;
      for (const { chunk } of rows.values()) {
        if (chunks.some((one) => one.start <= end(chunk) && chunk.start <= end(one))) return false;
      }
      for (const { name, start, end: last, finalHash } of chunks) {
        const chunk = { name, start, end: last, cursor: start, finalHeight: start - 1, finalHash };
        rows.set(name, {
          chunk: {
            ...chunk,
            firstParent: null,
            finished: false,
            opened: false,
            plan: { to: -1, facts: {} },
            updatedAt: now(),
          },
          holder: null,
          epoch: 0,
          until: 0,
          ceiling: 0,
          revision: 0,
          recorded: new Map(),
        });
      }
      return true;
    },
    async markOpened(name) {
      const row = rows.get(name);
      if (row !== undefined) row.chunk = { ...row.chunk, opened: true };
    },
    async acquire({ name, holder, ttlMs, nowMs, reserve, takeOver = false }) {
      const row = rows.get(name);
      if (row === undefined || (!takeOver && row.holder !== null && row.until >= now())) return null;
      row.ceiling = Math.max(row.ceiling + 1, nowMs) + reserve;
      Object.assign(row, { holder, epoch: Math.max(row.epoch + 1, nowMs), until: now() + ttlMs });
      return {
        chunk: chunkOf(row),
        epoch: row.epoch,
        seq: row.ceiling - reserve,
        seqCeiling: row.ceiling,
      };
    },
    async renew(fence, ttlMs) {
      fencedRow(fence).until = now() + ttlMs;
    },
    async release({ name, epoch }) {
      const row = rows.get(name);
      if (row?.epoch === epoch) row.holder = null;
    },
    async reserveSeq(fence, ceiling) {
      const row = fencedRow(fence);
      if (ceiling > row.ceiling + SEQ_RESERVE + 1) throw new Error('reserved more seqs than SEQ_RESERVE');
      row.ceiling = Math.max(row.ceiling, ceiling);
    },
    chunk: async (fence) => chunkOf(fencedRow(fence)),
    async plan(fence, plan) {
      const row = fencedRow(fence);
      row.chunk = { ...row.chunk, plan: copy(plan) };
    },
    async moveCursor(fence, { from, to, final, firstParent }) {
      const row = fencedRow(fence);
      if (row.chunk.cursor !== from) throw leaseLost(fence);
      row.chunk = {
        ...row.chunk,
        cursor: to,
        updatedAt: now(),
        ...(final === null ? {} : { finalHeight: final.height, finalHash: final.hash }),
        ...(from === row.chunk.start ? { firstParent } : {}),
      };
    },
    async finish(fence) {
      const row = fencedRow(fence);
      if (row.chunk.cursor !== (row.chunk.end ?? 0) + 1) throw leaseLost(fence);
      row.chunk = { ...row.chunk, finished: true, updatedAt: now() };
    },
    async recordedHeaders(fence) {
      const all = [...(rows.get(fence.name)?.recorded.values() ?? [])];
      return all
        .map(({ body, intent }) => ({
          height: body.height,
          hash: body.hash,
          parentHash: body.parent_hash,
          intent,
        }))
        .toSorted((a, b) => a.height - b.height);
    },
    async recordedBlocks(name, from, to) {
      const all = [...(rows.get(name)?.recorded.values() ?? [])];
      return all
        .filter(({ body }) => body.height >= from && body.height <= to)
        .toSorted((a, b) => a.body.height - b.body.height)
        .map(({ body, maps, rereads = [] }) => ({
          // As read from JSON.
          body: blockBody.parse(body),
          maps: copy(maps),
          rereads: rereads.map((one) => blockBody.parse(one)),
        }));
    },
    async record(fence, blocks) {
      const { recorded } = fencedRow(fence);
      for (const { body, maps } of blocks) {
        if (recorded.has(body.height)) throw new Error(`height ${body.height} is already recorded`);
        recorded.set(body.height, copy({ body, maps, intent: 'accept' }));
      }
    },
    async markForRevert(fence, fork) {
      const row = fencedRow(fence);
      row.chunk = { ...row.chunk, cursor: Math.min(row.chunk.cursor, fork + 1), updatedAt: now() };
      for (const [height, block] of row.recorded) if (height > fork) block.intent = 'revert';
    },
    async deleteReverted(fence, from) {
      const { recorded } = fencedRow(fence);
      for (const [height, { intent }] of recorded) {
        if (height >= from && intent === 'revert') recorded.delete(height);
      }
    },
    async setFinal(fence, point) {
      const row = fencedRow(fence);
      if (row.chunk.finalHeight >= point.height || row.chunk.cursor <= point.height) throw leaseLost(fence);
      row.chunk = { ...row.chunk, finalHeight: point.height, finalHash: point.hash };
      for (const height of row.recorded.keys()) if (height <= point.height) row.recorded.delete(height);
    },
    async pendingRepairs({ start, end }, limit) {
      const due = dueRepairs(start, end).toSorted((a, b) => a.nextTryAt - b.nextTryAt);
      return due.slice(0, limit).map(({ id, height, round, reread, replacesOrphan }) => ({
        id,
        height,
        round,
        reread,
        replacesOrphan,
      }));
    },
    finishedChunksToRepair: async () =>
      [...rows.values()]
        .filter(({ chunk }) => chunk.finished && dueRepairs(chunk.start, chunk.end).length > 0)
        .map(({ chunk }) => chunk.name),
    async postponeRepair(fence, { id, round }) {
      fencedRow(fence);
      const repair = repairs.find((one) => one.id === id && one.round === round);
      if (repair === undefined) return;
      repair.nextTryAt = now() + Math.min(REPAIR_BACKOFF.maxMs, REPAIR_BACKOFF.baseMs * 2 ** repair.attempts);
      repair.attempts += 1;
    },
    repairMaps: async (height) =>
      copy(repairs.filter((one) => one.height === height).flatMap(({ maps }) => maps)),
    async planRepair(fence, { id, height }, map, body) {
      const row = fencedRow(fence);
      repairs.find((one) => one.id === id)?.maps.push(copy(map));
      const recorded = row.recorded.get(height);
      if (recorded === undefined) return;
      const maps = [...recorded.maps, copy(map)];
      const rereads = [...(recorded.rereads ?? []), ...(body === undefined ? [] : [copy(body)])];
      row.recorded.set(height, { ...recorded, maps, rereads });
    },
    async finishRepair(fence, { id, height, round }, map, body) {
      const row = fencedRow(fence);
      const repair = repairs.find((one) => one.id === id);
      if (repair?.round === round) repair.done = true;
      const recorded = row.recorded.get(height);
      if (recorded === undefined || map === null) return;
      const { intent } = recorded;
      row.recorded.set(height, { intent, body: copy(body ?? recorded.body), maps: [copy(map)] });
    },
    async raiseAlarm(name, detail, fence) {
      if (fence === undefined || rows.get(fence.name)?.epoch === fence.epoch) alarms.set(name, detail);
    },
    async clearAlarms(names, fence) {
      if (fence !== undefined && rows.get(fence.name)?.epoch !== fence.epoch) return;
      for (const alarm of alarms.keys())
        if (names.some((name) => alarm === name || (name.endsWith(':') && alarm.startsWith(name))))
          alarms.delete(alarm);
    },
  };
}
