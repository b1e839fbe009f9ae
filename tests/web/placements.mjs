// Which nodes each provider took, from the verbose log of sessions: {provider: {count, nodes: [[type, name]]}}.
export function placements(log) {
  const placed = {};
  let provider = null;
  for (const line of log.join("\n").replace(/\x1b\[[0-9;]*m/g, "").split("\n")) {
    const head = line.match(/(?:Node\(s\) placed on|All nodes placed on) \[(\w+)\]\. Number of nodes: (\d+)/);
    if (head) {
      provider = (placed[head[1]] ??= { count: 0, nodes: [] });
      provider.count += Number(head[2]);
      continue;
    }
    const node = line.match(/VerifyEachNodeIsAssignedToAnEp\]\s+(\w+) \((.*)\)\s*$/);
    if (provider && node) provider.nodes.push([node[1], node[2]]);
  }
  return placed;
}
