import { toFelt } from '../felt.ts';
import type { Felt } from '../felt.ts';
import { selectors } from './layouts.ts';

/** Names of events by selector, which is the sn_keccak of the name. */
const names: ReadonlyMap<string | undefined, string> = new Map(
  Object.entries({
    ...selectors,
    Approval: toFelt(0x134692b230b9e1ffa39098904722134159652b09c5bc41d88d6698779d228ffn),
    ApprovalForAll: toFelt(0x6ad9ed7b6318f1bcffefe19df9aeb40d22c36bed567e1925a5ccde0536eddn),
    URI: toFelt(0x278764b0e84f45a602e24e86f19a3e2af7956f2a9112d825c8b5ca7991c711fn),
    OwnershipTransferred: toFelt(0x1390fd803c110ac71730ece1decfc34eb1d0088e295d4f1b125dda1e0c5b9ffn),
    RoleGranted: toFelt(0x9d4a59b844ac9d98627ddba326ab3707a7d7e105fd03c777569d0f61a91f1en),
    Upgraded: toFelt(0x2db340e6c609371026731f47050d3976552c89b4fbb012941663841c59d1af3n),
    TransactionExecuted: toFelt(0x1dcde06aabdbca2f80aa51392b345d7549d7757aa855f7e37f5d335ac8243b1n),
    transaction_executed: toFelt(0x5ad857f66a5b55f1301ff1ed7e098ac6d4433148f0b72ebc4a2945ab85ad53n),
  }).map(([name, selector]) => [selector, name]),
);

/**
 * The name of an event whose selector is known, else null. An event of a component that is not `#[flat]` has its selector as
 * the second key.
 */
export function eventName(keys: readonly Felt[]): string | null {
  return names.get(keys[0]) ?? names.get(keys[1]) ?? null;
}
