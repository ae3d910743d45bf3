import { AppError } from '../../schemas/errors.ts';
import { HttpError, notFound } from '../http/errors.ts';

/** The result of an operation of operators; its expected failures as HTTP errors, with their text. */
export async function answered<T>(operation: Promise<T>): Promise<T> {
  try {
    return await operation;
  } catch (error) {
    if (error instanceof AppError && error.code === 'NOT_FOUND') throw notFound(error.message);
    if (error instanceof AppError && error.code === 'CONFLICT')
      throw new HttpError(409, 'conflict', error.message, { cause: error });
    throw error;
  }
}
