import type { Role } from '../role.ts';
import { apiRole } from './api.ts';
import { dispatchRole } from './dispatch.ts';
import { ingestRole } from './ingest.ts';
import { observeRole } from './observe.ts';
import { projectRole } from './project.ts';

export const roles: readonly Role[] = [ingestRole, projectRole, observeRole, dispatchRole, apiRole];
