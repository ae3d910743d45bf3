import type { QuarantineFilter } from '../../projections/quarantine/queries.ts';
import type { ChunksAnswer } from '../../schemas/api/admin/chunks.ts';
import type { HistoryAnswer } from '../../schemas/api/admin/history.ts';
import type { OperationAnswer } from '../../schemas/api/admin/operations.ts';
import type { PipelineAnswer } from '../../schemas/api/admin/pipeline.ts';
import type { ProjectionsAnswer } from '../../schemas/api/admin/projections.ts';
import type { QuarantineDetail, QuarantineItem } from '../../schemas/api/admin/quarantine.ts';
import type { VerificationAnswer } from '../../schemas/api/admin/verification.ts';
import type { PublicVerificationAnswer } from '../../schemas/api/verification.ts';

export interface QuarantinePage {
  readonly items: readonly QuarantineItem[];
  /** Of all pages. */
  readonly count: number;
  /** Where the next page begins; null: this is the last. */
  readonly next: NonNullable<QuarantineFilter['after']> | null;
}

/** What the routes of admins and of verification show: read by the code of the `tds` commands, with the read-only roles of the API. */
export interface Operator {
  /** `tds status`. */
  pipeline(api: {
    readonly indexedHeight: number | null;
    readonly isRedisUp: boolean;
  }): Promise<PipelineAnswer>;
  /** The chunks of `tds status`. */
  chunks(): Promise<ChunksAnswer>;
  /** Rows of 5 or 60 seconds up to a time (unix milliseconds). */
  history(step: 5 | 60, now: number): Promise<HistoryAnswer>;
  /** `tds builds list` and `tds rebuild`. */
  projections(): Promise<ProjectionsAnswer>;
  /** Whether a rebuild of a projection is running. @throws `NOT_FOUND` where it is unknown */
  rebuilding(projection: string): Promise<{ readonly is_running: boolean }>;
  /** `tds quarantine list`: a page, with the number of all entries of the filter. */
  quarantine(filter: QuarantineFilter): Promise<QuarantinePage>;
  /** `tds quarantine show`, without reading the log. @throws `NOT_FOUND` */
  quarantined(id: string): Promise<QuarantineDetail>;
  /** `tds verify`: its last runs, and sampling. */
  verification(): Promise<VerificationAnswer>;
  /** What anyone is shown: the outcomes of all verifications. */
  publicVerification(): Promise<PublicVerificationAnswer>;
  /** The newest operations that admins requested, or the one with an id. */
  operations(id: string | null): Promise<readonly OperationAnswer[]>;
}
