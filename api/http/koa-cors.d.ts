/** The part of @koa/cors in use; the package has no types. */
declare module '@koa/cors' {
  import type { Middleware } from 'koa';

  export default function cors(options: {
    origin: string;
    exposeHeaders: readonly string[];
    allowMethods: string;
    maxAge: number;
    keepHeadersOnError: boolean;
  }): Middleware;
}
