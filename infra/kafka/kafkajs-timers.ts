import RequestQueue from 'kafkajs/src/network/requestQueue/index.js';

/** Between two looks at requests that are postponed because others are in flight. */
const SPACING_MS = 10;
/** Between two looks for requests that have timed out. */
const CHECK_MS = 1000;

/**
 * kafkajs (2.2.4) wakes a process a thousand times a second for each of its connections, also while nothing is sent: it looks
 * for postponed requests by a timer that sets itself again with a negative delay, and for timed out ones every 100 ms.
 */
RequestQueue.prototype.scheduleCheckPendingRequests = function () {
  if (this.pending.length === 0 || this.throttleCheckTimeoutId !== null) return;
  const delayMs = Math.max(this.throttledUntil - Date.now(), SPACING_MS);
  this.throttleCheckTimeoutId = setTimeout(() => {
    this.throttleCheckTimeoutId = null;
    this.checkPendingRequests();
  }, delayMs);
};

/** Queues of open connections. One timer serves them all, so that a process wakes once a second, not once for each. */
const open = new Set<RequestQueue>();
let looking: NodeJS.Timeout | undefined;

RequestQueue.prototype.scheduleRequestTimeoutCheck = function () {
  if (!this.enforceRequestTimeout) return;
  open.add(this);
  looking ??= setInterval(failTimedOut, CHECK_MS);
};

RequestQueue.prototype.destroy = function () {
  open.delete(this);
  if (open.size === 0) {
    clearInterval(looking);
    looking = undefined;
  }
  clearTimeout(this.throttleCheckTimeoutId ?? undefined);
  this.throttleCheckTimeoutId = null;
};

function failTimedOut(): void {
  const now = Date.now();
  for (const queue of open) {
    for (const request of queue.inflight.values())
      if (now - request.sentAt > request.requestTimeout) request.timeoutRequest();
    if (!queue.isConnected()) queue.destroy();
  }
}
