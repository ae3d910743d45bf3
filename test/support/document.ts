import { z } from 'zod';

import { describeApi } from '../../api/http/openapi.ts';
import { apiRoutes } from '../../api/routes.ts';
import type { RouteDeps } from '../../api/routes.ts';

/** An OpenAPI document of which each operation has this shape. */
export const documentOf = <T extends z.ZodType>(operation: T) =>
  z.object({ paths: z.record(z.string(), z.record(z.string(), operation)) });

/** The document of the API. The declarations need no store; only the handlers would. */
export const describedApi = (): ReturnType<typeof describeApi> => describeApi(apiRoutes({} as RouteDeps));
