import { Ajv2020 } from 'ajv/dist/2020.js';
import addFormats from 'ajv-formats';

import type { Answer, ApiWorld } from './api-world.ts';

/** Deviations of an answer from the OpenAPI document that the API serves. */
export type Complaints = (method: string, path: string, answer: Answer) => string[];

export async function openApiChecker(world: Pick<ApiWorld, 'call'>): Promise<Complaints> {
  const { json: document } = await world.call('GET', '/api/openapi.json');
  const ajv = new Ajv2020({ strict: false, allErrors: true });
  addFormats.default(ajv);
  ajv.addSchema(document, 'document');
  const patterns = Object.keys(document.paths).map((path) => ({
    path,
    pattern: new RegExp(`^${path.replace(/\/$/, '').replaceAll(/\{[a-z_]+\}/g, '[^/]+')}/?$`),
  }));
  return (method, path, answer) => {
    const bare = path.split('?')[0] ?? '';
    const known = patterns
      .filter(({ pattern }) => pattern.test(bare))
      .toSorted((a, b) => a.path.split('{').length - b.path.split('{').length)[0];
    const operation = known && document.paths[known.path][method.toLowerCase()];
    if (operation === undefined) return [`${method} ${bare} is not described`];
    const declared = operation.responses[answer.status];
    if (declared === undefined) return [`${method} ${bare}: ${answer.status} is not described`];
    const shared = declared.$ref?.split('/').at(-1);
    const response = shared === undefined ? declared : document.components.responses[shared];
    const media = answer.headers.get('content-type')?.split(';')[0] ?? '';
    if (media !== 'application/json' && response.content?.[media] !== undefined) return [];
    const content = response.content?.['application/json'];
    const location = answer.headers.get('location') ?? '';
    const isFound = patterns.some(
      ({ path: at, pattern: of }) => of.test(location) && document.paths[at].get !== undefined,
    );
    if (answer.status === 201 && !isFound) return [`201 of what is to be found at "${location}"`];
    if (content === undefined) return answer.text === '' ? [] : [`${answer.status} has a body`];
    const at =
      shared === undefined
        ? ['paths', known?.path, method.toLowerCase(), 'responses', String(answer.status)]
        : ['components', 'responses', shared];
    const pointer = at
      .concat(['content', 'application/json', 'schema'])
      .map((part) =>
        String(part)
          .replaceAll('~', '~0')
          .replaceAll('/', '~1')
          .replaceAll('{', '%7B')
          .replaceAll('}', '%7D'),
      )
      .join('/');
    const validate = ajv.getSchema(`document#/${pointer}`);
    if (validate === undefined) return [`no schema at ${pointer}`];
    return validate(answer.json) === true
      ? []
      : (validate.errors ?? []).map(({ instancePath, message }) => `${instancePath} ${message}`);
  };
}
