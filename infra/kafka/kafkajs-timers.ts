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

RequestQueue.prototype.scheduleRequestTimeoutCheck = function () {
  if (!this.enforceRequestTimeout) return;
  this.destroy();
  this.requestTimeoutIntervalId = setInterval(
    () => {
      for (const request of this.inflight.values())
        if (Date.now() - request.sentAt > request.requestTimeout) request.timeoutRequest();
      if (!this.isConnected()) this.destroy();
    },
    Math.min(this.requestTimeout, CHECK_MS),
  );
};
