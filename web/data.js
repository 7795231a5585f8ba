// @ts-check
// The shape of the page's data, as src/report/report_data.cpp writes it. Times are nanoseconds since
// the first thing on the page, durations nanoseconds, sizes bytes.

/**
 * @typedef {{span: number, compute: number, exposed_communication: number, exposed_copy: number,
 *   data_wait: number, idle: number, communication: number, overlap: number}} Parts
 * @typedef {Parts & {step: number, name: string, start: number, duration: number, phases: number[],
 *   idle_causes: number[]}} Step
 * @typedef {{rank: number, whole: Parts, steps: Step[], phases: number[], classes: number[],
 *   idle_causes: number[], idle_what: Object<string, number>}} RankTime
 * @typedef {{phases: string[], classes: string[], idle_causes: string[], ranks: RankTime[]}} TimeData
 *
 * @typedef {{rank: number, source: string, origin: string, device: string, host: string, device_work: boolean,
 *   steps: number, step: number, launch_delay: number, launches: number, kernels: number,
 *   short_kernels: number, queue: number, tensor_core: number, matmul: number, recompute: number,
 *   recompute_evidence: string, flops: number, flops_covered: number, window: number, peak: number,
 *   profiler: number, to_host: number, to_device: number, notes: string[],
 *   counters: {name: string, samples: number, min: number, mean: number, max: number}[],
 *   clock?: {offset: number, uncertainty: number, samples: number, method: string},
 *   exposed_wait?: number, exposed_transfer?: number, exposed_unknown?: number}} RankRow
 *
 * @typedef {{text: string, rank: number, step: number, begin?: number, end?: number}} Evidence
 * @typedef {{rule: string, severity: string, title: string, summary: string, cause: string, fix: string[],
 *   gain: string, ranks: number[], steps: number[], cost: number, share: number, confidence: number,
 *   evidence: Evidence[]}} Finding
 * @typedef {{verdict: string, per_step: boolean, abstained: string[], findings: Finding[]}} Diagnosis
 * @typedef {{change: string, step: number|null, unknown: string}} WhatIf
 * @typedef {{rank: number, window: string, per_step: boolean, step: number, parts: [string, number][], what_if: WhatIf[],
 *   inferred: string[]}} Path
 *
 * @typedef {{category: string, holder: string, bytes: number}} Holder
 * @typedef {{rank: number, source: string, times: number[], bytes: number[][], reserved: number[], peak: number,
 *   peak_reserved: number, capacity: number, at_peak: number[], holders: Holder[], holders_when: string,
 *   fragmentation: number, largest_free: number, retries: number, out_of_memory: number,
 *   notes: string[]}} MemoryRank
 * @typedef {{categories: string[], ranks: MemoryRank[]}} MemoryData
 *
 * @typedef {{name: string, group: string, ranks: number[], count: number, unmatched: number, bytes: number,
 *   total: number, exposed: number, wait: number, transfer: number, bandwidth: number, expected: number,
 *   expected_from: string, last: [number, number][]}} CollectiveKind
 * @typedef {{name: string, group: string, step: number, bytes: number, whole: boolean, skew: number,
 *   wait: number, transfer: number, bandwidth: number, first: number, last: number, begin: number,
 *   end: number}} MatchedCollective
 * @typedef {{role: string, name: string, description: string, ranks: number[], uses: number, total: number,
 *   bytes: number}} LayoutGroup
 * @typedef {{known: boolean, confidence: string, reasons: string[], sharded: boolean,
 *   sizes: Object<string, number>, groups: LayoutGroup[]}} Layout
 * @typedef {{source: string, version: string, network: string, devices: string[], hosts: string[],
 *   transports: Object<string, number>, environment: Object<string, string>, problems: string[]}} Nccl
 * @typedef {[number, number, number][]} Matrix from rank, to rank, amount
 * @typedef {{ranks: number[], waits: Matrix, bytes: Object<string, Matrix>, kinds: CollectiveKind[],
 *   collectives: MatchedCollective[], collectives_total: number, layout: Layout, nccl: Nccl[]}} Communication
 * @typedef {{source: string, gpus: string[], nics: string[], links: {kind: string, nvlinks: number}[][],
 *   numa: number[], islands: number[][]}} Topology
 *
 * @typedef {{stage: number, ranks: number[], step: number, compute: number, bubble: number, schedule: number,
 *   waiting: number, host_bound: number, transfer: number, other: number, forward: number, backward: number}} Stage
 * @typedef {[number, number, number, number, number, number, number]} Cell
 *   stage, rank, micro-batch, step, forward (1) or backward (0), begin, end
 * @typedef {{stages: Stage[], micro_batches: number, order: string, ideal: number, measured: number,
 *   cells: Cell[], notes: string[]}} Pipeline
 *
 * @typedef {{name: string, kind: string, tensor_core: boolean, count: number, total: number, min: number,
 *   max: number, by_rank?: number[]}} Kernel
 * @typedef {{name: string, shapes: string, count: number, host: number, self: number, device: number,
 *   flops: number, bytes: number}} Operator
 * @typedef {{rank: number, begin: number, duration: number, cause: string, what: string, step: number}} Gap
 * @typedef {{kernels: Kernel[], operators: Operator[], gaps: Gap[], totals: Object<string, number>}} Tables
 *
 * @typedef {{rank: number, steps: number, of_steps: number, cost: number, p: number, reason: string,
 *   evidence: string, more: string[]}} StragglerRow
 * @typedef {{rank: number, step: string, excess: number, cause: string, evidence: string, begin: number,
 *   end: number}} Outlier
 * @typedef {{world_size: number, ranks: RankRow[], time: TimeData, unknown: string[],
 *   stragglers: {tested: boolean, note: string, rows: StragglerRow[]}, outliers: Outlier[],
 *   communication: Communication, topologies: Topology[], pipeline: Pipeline|null, paths: Path[],
 *   tables: Tables}} Job
 *
 * @typedef {{rank: number, begin: number, shown: number, total: number, host_under: number,
 *   device_under: number, kinds: number[]}} TimelineRankMeta
 * @typedef {{kinds: string[], end: number, ranks: TimelineRankMeta[]}} TimelineMeta
 *
 * @typedef {{total_bytes: number, by_category_bytes: Object<string, number>, context_bytes: number,
 *   fragmentation_bytes: number, peak_moment: string}} PlanStage
 * @typedef {{description: string, step_ns: number|null, memory_bytes: number}} PlanCandidate
 * @typedef {{description: string, limit: string,
 *   prediction: {step_ns: number, bounding_stage: number, step_parts_ns: Object<string, number>,
 *     memory: {capacity_bytes: number, fullest_stage: number, stages: PlanStage[]}},
 *   changes: {what: string, step_ns: number, memory_bytes: number}[],
 *   search?: {pareto: PlanCandidate[]}}} Plan what `vitrine plan --json` prints (docs/formats/plan.md)
 *
 * @typedef {{label: string, value: string, unit: string, note: string, tone: string}} Card
 * @typedef {{steps: number[], columns: {name: string, values: (number|null)[]}[]}} Metrics
 * @typedef {{title: string, subtitle: string, footer: string, facts: [string, string][], cards: Card[],
 *   warnings: string[], images: {title: string, uri: string}[], metrics: Metrics,
 *   memory: MemoryData, timeline: TimelineMeta, diagnosis: Diagnosis|null,
 *   job: Job|null, plan?: Plan}} Page
 *
 * @typedef {(from: number, to: number, rank: number) => void} Jump shows that time of that rank (-1: all)
 */

export {};
