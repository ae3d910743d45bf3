import type { Config } from '../config.ts';
import type { Releasers } from '../lifecycle.ts';
import type { Logger } from '../log.ts';
import type { Registry } from '../metrics.ts';

/** The dependencies of a role. What it opens it pushes to `releasers`, which run even if its start fails. */
export interface RoleContext {
  readonly config: Config;
  readonly log: Logger;
  readonly metrics: Registry;
  readonly releasers: Releasers;
  readonly signal: AbortSignal;
  /** Ends the process, so that its supervisor restarts it. */
  readonly fail: (error: unknown) => void;
}

/** Resolves when the role works; with its URL if it serves one. */
export type StartRole = (context: RoleContext, only: readonly string[]) => Promise<{ url: string | null }>;

export interface Role {
  readonly name: string;
  /** The help text of its command. */
  readonly summary: string;
  /** Imports the role's modules: a process loads those of its own role only. */
  readonly load: () => Promise<StartRole>;
}
