import type { PipelineAnswer } from '../../schemas/api/admin/pipeline.ts';

/** What the routes of admins show: read by the code of the `tds` commands, with the read-only roles of the API. */
export interface Operator {
  /** `tds status`, except the height of the API and the state of Redis. */
  pipeline(api: {
    readonly indexedHeight: number | null;
    readonly isRedisUp: boolean;
  }): Promise<PipelineAnswer>;
}
