/**
 * The schedule of a graceful stop, from the innermost layer to the outermost. Each layer waits for the one inside it, so
 * each deadline exceeds the one before it. They are upper bounds: with no request in flight a stop takes about a second.
 */

/** In-flight HTTP requests; a request may take 8 s. */
export const REQUEST_DRAIN_MS = 10_000;
/** A role: the drain, then flushing usage counts and closing the stores. */
export const ROLE_SHUTDOWN_MS = 15_000;
/** A supervised role is killed after this. */
export const ROLE_KILL_MS = 17_000;
/** `npm start`: its roles, then the embedded services (8 s). Below the 30 s after which Kubernetes kills a pod. */
export const START_SHUTDOWN_MS = 28_000;
