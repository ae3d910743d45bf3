import type { JSX } from 'preact';
import { useEffect, useRef } from 'preact/hooks';

import { shortHex } from '../format.ts';
import type { Graph, GraphEdge, GraphNode } from '../graph.ts';

/** Accounts joined by lines, which show what they exchanged on hover. */
export function Drawing({
  graph: { nodes, edges, box },
  root,
  chosen,
  isExpanded,
  isBusy,
  textOf,
  onChoose,
}: {
  readonly graph: Graph;
  readonly root: string;
  readonly chosen: string;
  readonly isExpanded: (account: string) => boolean;
  readonly isBusy: boolean;
  readonly textOf: (edge: GraphEdge) => string;
  readonly onChoose: (account: string) => void;
}): JSX.Element {
  const at = new Map(nodes.map((node) => [node.address, node]));
  const holder = useRef<HTMLDivElement>(null);
  // Where it is larger than its region, the root is in the middle.
  useEffect(() => {
    const { current } = holder;
    if (current === null) return;
    const observer = new ResizeObserver(() =>
      current.scrollTo({
        left: -box.left - current.clientWidth / 2,
        top: -box.top - current.clientHeight / 2,
      }),
    );
    // Called once at the beginning too.
    observer.observe(current);
    return () => observer.disconnect();
  }, [box.left, box.top]);
  return (
    <div
      ref={holder}
      class="scroll drawing"
      role="region"
      aria-label="Graph of counterparties"
      tabIndex={0}
      aria-busy={isBusy}
    >
      <svg
        class="graph"
        viewBox={`${box.left} ${box.top} ${box.width} ${box.height}`}
        width={box.width}
        height={box.height}
      >
        {edges.map((edge) => {
          const [from, to] = [at.get(edge.of), at.get(edge.address)];
          return (
            from !== undefined &&
            to !== undefined && (
              <line
                key={`${edge.of}-${edge.address}`}
                class={edge.sent > edge.received ? 'sent' : 'received'}
                x1={from.x}
                y1={from.y}
                x2={to.x}
                y2={to.y}
                stroke-width={1 + 6 * edge.share}
              >
                <title>{textOf(edge)}</title>
              </line>
            )
          );
        })}
        {nodes.map((node) => (
          <Node
            key={node.address}
            node={node}
            isRoot={node.address === root}
            isChosen={node.address === chosen}
            isExpanded={isExpanded(node.address)}
            onChoose={() => onChoose(node.address)}
          />
        ))}
      </svg>
    </div>
  );
}

function Node({
  node: { address, x, y, angle },
  isRoot,
  isChosen,
  isExpanded,
  onChoose,
}: {
  readonly node: GraphNode;
  readonly isRoot: boolean;
  readonly isChosen: boolean;
  readonly isExpanded: boolean;
  readonly onChoose: () => void;
}): JSX.Element {
  // Labels point away from the centre; on the left they are turned, so that none stands on its head.
  const isLeft = angle > 90 && angle < 270;
  return (
    <g
      role="button"
      // Attributes of SVG are case-sensitive.
      tabindex={0}
      class={isChosen ? 'node chosen' : 'node'}
      aria-label={`Counterparties of ${nameOf(address)}`}
      aria-expanded={isExpanded}
      transform={`translate(${x} ${y})`}
      onClick={onChoose}
      onKeyDown={(event) => {
        if (event.key !== 'Enter' && event.key !== ' ') return;
        event.preventDefault();
        onChoose();
      }}
    >
      <title>{address}</title>
      <circle r={isRoot ? 9 : 6} class={isExpanded ? 'expanded' : ''} />
      <text
        transform={isRoot ? '' : `rotate(${isLeft ? angle - 180 : angle})`}
        x={isRoot ? 0 : isLeft ? -11 : 11}
        y={isRoot ? -16 : 4}
        text-anchor={isRoot ? 'middle' : isLeft ? 'end' : 'start'}
      >
        {nameOf(address)}
      </text>
    </g>
  );
}

/** Transfers from the zero address mint, those to it burn. */
export const nameOf = (address: string): string =>
  BigInt(address) === 0n ? 'zero address' : shortHex(address);
