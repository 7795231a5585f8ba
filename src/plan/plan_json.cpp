// JSON of predictions and searches.
#include "core/json.h"
#include "plan/plan_text.h"
#include "plan/strategy_json.h"

namespace vitrine {
namespace {

Json memory_json(const StageMemory& stage) {
  Json categories = Json::object();
  for (size_t c = 0; c < stage.bytes.size(); ++c) {
    categories[memory_category_name(static_cast<MemoryCategory>(c))] = stage.bytes[c];
  }
  return {{"total_bytes", stage.total()},
          {"by_category_bytes", std::move(categories)},
          {"context_bytes", stage.context_bytes},
          {"fragmentation_bytes", stage.fragmentation_bytes},
          {"peak_moment", stage.peak_moment},
          {"micro_batches_in_flight", stage.in_flight},
          {"parameters", stage.parameters}};
}

Json candidate_json(const Candidate& c) {
  Json json = {{"strategy", strategy_json(c.strategy)},
               {"description", describe_strategy(c.strategy)},
               {"memory_bytes", c.memory_bytes},
               {"least_step_ns", c.least_ns},
               {"step_ns", nullptr}};
  if (c.step_ns > 0) json["step_ns"] = c.step_ns;
  return json;
}

Json candidates_json(const std::vector<Candidate>& all) {
  Json rows = Json::array();
  for (const Candidate& c : all) rows.push_back(candidate_json(c));
  return rows;
}

}  // namespace

Json job_json(const PlanJob& job) {
  const Cluster& c = job.cluster;
  return {{"model",
           {{"name", job.model.name},
            {"family", job.model.family},
            {"parameters", job.model.parameters()},
            {"active_parameters", job.model.active_parameters()}}},
          {"cluster",
           {{"card", c.card->name},
            {"profile", c.profile},
            {"gpus", c.gpus},
            {"gpus_per_node", c.gpus_per_node},
            {"link_bytes_per_s", c.link_bytes_per_s},
            {"network_bytes_per_s", c.network_bytes_per_s},
            {"efficiency",
             {{"era", c.efficiency.era},
              {"matmul", c.efficiency.matmul},
              {"memory", c.efficiency.memory},
              {"launch_ns", c.efficiency.launch_ns},
              {"fitted_to", c.efficiency.fitted_to}}},
            {"sources", c.sources}}},
          {"strategy", strategy_json(job.strategy)},
          {"assumed", job.assumed}};
}

Json prediction_json(const PlanJob& job, const Prediction& p) {
  Json stages = Json::array(), parts = Json::object();
  for (const StageMemory& stage : p.memory) stages.push_back(memory_json(stage));
  for (const StepPart& part : step_parts(p)) parts[part.name] = part.ns;
  const PlanCost cost = plan_cost(job, p);
  const auto money = [&](double value) { return job.price_per_hour > 0 ? Json(value) : Json(); };
  return {{"fits", p.fits},
          {"memory",
           {{"capacity_bytes", p.capacity_bytes},
            {"fullest_stage", p.fullest_stage},
            {"host_bytes", p.host_bytes},
            {"disk_bytes", p.disk_bytes},
            {"stages", std::move(stages)}}},
          {"step_ns", p.time.step_ns},
          {"step_parts_ns", std::move(parts)},
          {"bounding_stage", p.time.bounding_stage},
          {"bubble_rate", p.time.bubble_rate},
          {"tokens_per_s", p.tokens_per_s},
          {"samples_per_s", p.samples_per_s},
          {"model_flops", p.model_flops},
          {"executed_flops", p.executed_flops},
          {"tflops_per_gpu", p.tflops_per_gpu},
          {"mfu", p.mfu},
          {"hfu", p.hfu},
          {"sent_bytes_per_step",
           {{"gather", p.traffic.gather},
            {"reduce", p.traffic.reduce},
            {"publish", p.traffic.publish},
            {"pipeline", p.traffic.pipeline},
            {"tensor", p.traffic.tensor},
            {"context", p.traffic.context},
            {"expert", p.traffic.expert},
            {"offload", p.traffic.offload},
            {"total", p.traffic.total()}}},
          {"cost",
           {{"tokens", job.tokens},
            {"gpu_hours", cost.gpu_hours},
            {"hours", cost.hours},
            {"price_per_gpu_hour", money(job.price_per_hour)},
            {"money", money(cost.money)}}}};
}

Json changes_json(const std::vector<Change>& changes) {
  Json rows = Json::array();
  for (const Change& c : changes) {
    const Prediction& p = c.prediction;
    rows.push_back({{"what", c.what},
                    {"fits", p.fits},
                    {"step_ns", p.time.step_ns},
                    {"speed", c.speed},
                    {"memory_bytes", p.memory[static_cast<size_t>(p.fullest_stage)].total()},
                    {"memory_change_bytes", c.memory_bytes},
                    {"strategy", strategy_json(c.strategy)}});
  }
  return rows;
}

Json search_json(const SearchResult& r) {
  Json losses = Json::array();
  for (const Loss& loss : r.losses) {
    losses.push_back({{"reason", loss.reason},
                      {"count", loss.count},
                      {"detail", loss.detail},
                      {"nearest", candidate_json(loss.nearest)}});
  }
  return {{"considered", r.considered},
          {"fit", r.fit},
          {"simulated", r.simulated},
          {"seconds", r.seconds},
          {"best", candidates_json(r.best)},
          {"pareto", candidates_json(r.pareto)},
          {"losses", std::move(losses)}};
}

}  // namespace vitrine
