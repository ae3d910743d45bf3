import type { ObjectStore } from '../../infra/object-store/store.ts';
import { exportManifest } from '../../schemas/api/exports.ts';
import type { ExportManifest } from '../../schemas/api/exports.ts';

/** The object that lists the files of `tds export build`. */
export const MANIFEST = 'manifest.json';

/** null: the store has none. */
export async function readManifest(store: ObjectStore, signal: AbortSignal): Promise<ExportManifest | null> {
  const text = await store.text(MANIFEST, signal);
  return text === null ? null : exportManifest.parse(JSON.parse(text));
}
