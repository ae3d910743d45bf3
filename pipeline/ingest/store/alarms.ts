import { insertAlarms } from '../../../infra/health/alarms.ts';
import { storable } from '../../../schemas/text.ts';
import type { IngestStore } from '../ports.ts';
import { anyRow } from './sql.ts';
import type { Statements } from './sql.ts';

/** As `LEASE`, for what is not part of the chunk's state. */
const HELD = 'lease AS (SELECT 1 FROM tds.chunks WHERE name = $1 AND epoch = $2 FOR NO KEY UPDATE)';

/** Statements for alarms; a fenced one changes nothing once the lease of the chunk is lost. */
export function createAlarmStore({
  rows,
}: Pick<Statements, 'rows'>): Pick<IngestStore, 'raiseAlarm' | 'clearAlarms'> {
  return {
    async raiseAlarm(name, detail, fence) {
      const stored = storable(detail);
      if (fence === undefined) await rows(anyRow, insertAlarms('VALUES ($1, $2)'), [name, stored]);
      else {
        const values = [fence.name, fence.epoch, name, stored];
        await rows(anyRow, `WITH ${HELD} ${insertAlarms('SELECT $3, $4 FROM lease')}`, values);
      }
    },
    async clearAlarms(names, fence) {
      const remove = (list: string): string =>
        `DELETE FROM tds.alarms WHERE (name = ANY(${list}) OR split_part(name, ':', 1) || ':' = ANY(${list}))`;
      if (fence === undefined) await rows(anyRow, remove('$1'), [names]);
      else {
        const held = `WITH ${HELD} ${remove('$3')} AND EXISTS (SELECT 1 FROM lease)`;
        await rows(anyRow, held, [fence.name, fence.epoch, names]);
      }
    },
  };
}
