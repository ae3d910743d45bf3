/** The part of @koa/cors that is used; the package brings no types. */
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
