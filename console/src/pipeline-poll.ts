/** A part of the 5 s within which a stopped process shows. Free of Preact, so that a unit test imports it. */
export const PIPELINE_POLL_MS = 1000;
