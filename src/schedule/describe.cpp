// A schedule in words and as JSON.
#include "core/format.h"
#include "core/json.h"
#include "schedule/action.h"

namespace vitrine {

const char* action_kind_name(ActionKind kind) {
  static const char* const names[] = {"reserve",
                                      "gather",
                                      "release",
                                      "forward",
                                      "backward",
                                      "reduce",
                                      "send",
                                      "receive",
                                      "norm",
                                      "update",
                                      "publish"};
  return names[static_cast<size_t>(kind)];
}

const char* lane_name(LaneId lane) {
  static const char* const names[] = {
      "compute", "gather", "reduce", "send down", "receive down", "send up", "receive up"};
  return names[static_cast<size_t>(lane)];
}

namespace {

std::string target_of(const Action& action, const Graph& graph) {
  if (action.edge >= 0) return graph.edges[static_cast<size_t>(action.edge)].name;
  std::vector<std::string> names;
  for (const int unit : action.units) {
    names.push_back(graph.parameters->units[static_cast<size_t>(unit)].name);
  }
  if (!names.empty()) return join(names, " + ");
  return action.block >= 0 ? graph.blocks[static_cast<size_t>(action.block)].name : "all";
}

}  // namespace

std::string describe_schedule(const Schedule& schedule, const Graph& graph) {
  std::string text = format("  %5s  %-12s  %-8s  %5s  %-34s %12s  %s\n",
                            "#",
                            "lane",
                            "action",
                            "micro",
                            "on",
                            "sends",
                            "waits for");
  for (size_t i = 0; i < schedule.actions.size(); ++i) {
    const Action& action = schedule.actions[i];
    std::vector<std::string> waits;
    for (const int wait : action.waits) waits.push_back("#" + std::to_string(wait));
    std::string target = target_of(action, graph);
    if (action.of_reduction) target = "gradients of " + target;
    if (action.peer >= 0) {
      target += (action.kind == ActionKind::kSend ? " to rank " : " from rank ") +
                std::to_string(action.peer);
    }
    text += format(
        "  %5zu  %-12s  %-8s  %5s  %-34s %12s  %s\n",
        i,
        lane_name(action.lane),
        action_kind_name(action.kind),
        action.micro_batch < 0 ? "" : std::to_string(action.micro_batch).c_str(),
        target.c_str(),
        action.sent_bytes ? format_bytes(static_cast<double>(action.sent_bytes)).c_str() : "",
        join(waits, " ").c_str());
  }
  for (const std::string& skipped : schedule.skipped_gathers)
    text += "  no gather of " + skipped + "\n";
  const TrafficCount traffic = schedule.traffic();
  text += "  this rank sends " + format_bytes(static_cast<double>(traffic.total())) +
          " a step: gather " + format_bytes(static_cast<double>(traffic.gather_bytes)) +
          ", reduce " + format_bytes(static_cast<double>(traffic.reduce_bytes)) + ", publish " +
          format_bytes(static_cast<double>(traffic.publish_bytes)) + ", pipeline " +
          format_bytes(static_cast<double>(traffic.pipeline_bytes)) + ", control " +
          format_bytes(static_cast<double>(traffic.control_bytes)) + "\n";
  return text;
}

std::string schedule_json(const Schedule& schedule, const Graph& graph) {
  Json actions = Json::array();
  for (const Action& action : schedule.actions) {
    Json row{{"kind", action_kind_name(action.kind)},
             {"lane", lane_name(action.lane)},
             {"micro_batch", action.micro_batch},
             {"on", target_of(action, graph)},
             {"sent_bytes", action.sent_bytes},
             {"waits", action.waits}};
    if (action.peer >= 0) row["peer"] = action.peer;
    if (action.kind == ActionKind::kReduce) row["first_micro"] = action.first_micro;
    if (action.kind == ActionKind::kReserve || action.kind == ActionKind::kRelease)
      row["of_reduction"] = action.of_reduction;
    actions.push_back(std::move(row));
  }
  const Json document{{"rank", schedule.rank},
                      {"actions", std::move(actions)},
                      {"forward_end", schedule.forward_end},
                      {"backward_end", schedule.backward_end},
                      {"skipped_gathers", schedule.skipped_gathers}};
  return document.dump(1);
}

}  // namespace vitrine
