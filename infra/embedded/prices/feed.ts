import type { RequestListener } from 'node:http';

import { errorMessage } from '../../../schemas/errors.ts';
import { send } from '../loopback.ts';
import { feedAnswer, FeedError } from './answers.ts';

/** A price feed with DefiLlama's coins API and a token list with AVNU's. */
export function createFeedListener(seed: string): RequestListener {
  return (request, response) => {
    try {
      const url = new URL(request.url ?? '/', 'http://feed');
      send(response, 200, JSON.stringify(feedAnswer(url, { seed, now: Date.now(), everySeconds: 60 })));
    } catch (error) {
      const status = error instanceof FeedError ? error.status : 500;
      send(response, status, JSON.stringify({ message: errorMessage(error) }));
    }
  };
}
