// The pipeline's chart: passes of micro-batches by stage, and what of a step is bubble.
#include "core/format.h"
#include "report/page_parts.h"

namespace vitrine {

namespace {
constexpr size_t kMostCells = 40000;
}  // namespace

Json pipeline_json(const PipelineFacts& pipeline, const PageClock& clock) {
  Json stages = Json::array(), cells = Json::array();
  for (const PipelineStage& stage : pipeline.by_stage) {
    stages.push_back({{"stage", stage.stage},
                      {"ranks", stage.ranks},
                      {"step", stage.step_ns},
                      {"compute", stage.compute_ns},
                      {"bubble", stage.bubble_ns},
                      {"schedule", stage.schedule_ns},
                      {"waiting", stage.waiting_ns},
                      {"host_bound", stage.host_bound_ns},
                      {"transfer", stage.transfer_ns},
                      {"other", stage.other_ns},
                      {"forward", stage.forward_ns},
                      {"backward", stage.backward_ns}});
  }
  for (const auto& cell : pipeline.cells) {
    if (cells.size() == kMostCells) break;
    cells.push_back({cell.stage,
                     cell.rank,
                     cell.micro_batch,
                     cell.step,
                     cell.forward ? 1 : 0,
                     clock.at_job(cell.begin_ns),
                     clock.at_job(cell.end_ns)});
  }
  std::vector<std::string> notes = pipeline.notes;
  if (pipeline.cells.size() > kMostCells) {
    notes.push_back(format("The chart shows %zu of %zu passes; the figures are of all.",
                           kMostCells,
                           pipeline.cells.size()));
  }
  return {{"stages", std::move(stages)},
          {"micro_batches", pipeline.micro_batches},
          {"order", pipeline.order},
          {"ideal", pipeline.ideal_bubble},
          {"measured", pipeline.measured_bubble},
          {"cells", std::move(cells)},
          {"notes", std::move(notes)}};
}

}  // namespace vitrine
