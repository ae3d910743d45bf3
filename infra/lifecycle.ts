/** Releases resources in reverse order of their creation. A release that fails is reported, and the others still run. */
export class Releasers {
  readonly #entries: { name: string; release: () => Promise<void> | void }[] = [];
  readonly #onError: (name: string, error: unknown) => void;

  constructor(onError: (name: string, error: unknown) => void) {
    this.#onError = onError;
  }

  push(name: string, release: () => Promise<void> | void): void {
    this.#entries.push({ name, release });
  }

  /** For resources that do not need each other: they are released at the same time, in the place of this call. */
  together(name: string): Pick<Releasers, 'push'> {
    const parts: Releasers[] = [];
    this.push(name, async () => void (await Promise.all(parts.map((part) => part.releaseAll()))));
    return {
      push: (part, release) => {
        const releasers = new Releasers(this.#onError);
        releasers.push(part, release);
        parts.push(releasers);
      },
    };
  }

  async releaseAll(): Promise<void> {
    for (let entry = this.#entries.pop(); entry !== undefined; entry = this.#entries.pop()) {
      try {
        await entry.release();
      } catch (error) {
        this.#onError(entry.name, error);
      }
    }
  }
}

/** Resolves after `ms`, or when the signal fires; never rejects. */
export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal?.aborted === true) {
      resolve();
      return;
    }
    const finish = (): void => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', finish);
      resolve();
    };
    const timer = setTimeout(finish, ms);
    signal?.addEventListener('abort', finish, { once: true });
  });
}

/** The result of `work`, or `late` after a timeout, or when the signal fires. */
export async function withTimeout<T>(
  work: Promise<T>,
  ms: number,
  late: T,
  signal?: AbortSignal,
): Promise<T> {
  const waited = Promise.withResolvers<T>();
  const finish = (): void => waited.resolve(late);
  const timer = setTimeout(finish, ms);
  signal?.addEventListener('abort', finish, { once: true });
  if (signal?.aborted === true) finish();
  try {
    return await Promise.race([work, waited.promise]);
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener('abort', finish);
  }
}
