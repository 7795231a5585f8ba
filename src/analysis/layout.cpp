// Degrees from descriptions first, from traffic where those are silent.
#include "analysis/layout.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "analysis/collective_shape.h"
#include "analysis/group_roles.h"

namespace vitrine {
namespace {

// What the ranks that were read send in one group.
struct Traffic {
  LayoutFacts::Group group;
  int32_t size = 0;
  std::set<std::pair<int32_t, int32_t>> rank_steps;  // in which it was used
  int64_t all_gather = 0, reduce_scatter = 0, reduce_scatter_forward = 0;
  int64_t all_reduce_forward = 0, all_reduce_backward = 0, all_reduce_other = 0;
  int64_t all_to_all = 0, messages = 0;

  double per_step(int64_t count) const {
    return static_cast<double>(count) / static_cast<double>(std::max<size_t>(1, rank_steps.size()));
  }
};

// (ranks, name where ranks are not known)
using GroupKey = std::pair<std::vector<int32_t>, std::string>;

std::string count_text(double count) {
  const auto tenths = static_cast<int64_t>(count * 10 + 0.5);
  return std::to_string(tenths / 10) + (tenths % 10 == 0 ? "" : "." + std::to_string(tenths % 10));
}

class Inference {
 public:
  Inference(const std::vector<RankFacts>& ranks, int32_t world_size, int32_t pipeline_stages)
      : ranks_(ranks), stages_(pipeline_stages) {
    layout_.world_size = world_size;
  }

  LayoutFacts run(const std::vector<MatchedCollective>& collectives) {
    for (const RankFacts& rank : ranks_) add_rank(rank);
    add_nameless(collectives);
    from_descriptions();
    from_traffic();
    if (stages_ > 1 && layout_.pipeline == 1) {
      layout_.pipeline = stages_;
      say("Messages between single ranks form a chain of " + std::to_string(stages_) + " stages.");
    }
    check_product();
    list_groups();
    return std::move(layout_);
  }

 private:
  void say(std::string reason) { layout_.reasons.push_back(std::move(reason)); }

  Traffic& traffic_of(const GroupUse& group) {
    Traffic& traffic = traffic_[{group.ranks, group.ranks.empty() ? group.name : ""}];
    if (traffic.size == 0) {
      traffic.group.name = group.name;
      traffic.group.ranks = group.ranks;
      traffic.size = group.ranks.empty() ? group.size : static_cast<int32_t>(group.ranks.size());
    }
    // Several groups may have the same ranks: the one with words speaks for them.
    const std::string role = role_of_description(group.description);
    const std::string old = role_of_description(traffic.group.description);
    if (traffic.group.description.empty() || ((old.empty() || old == "world") && !role.empty())) {
      traffic.group.description = group.description;
    }
    return traffic;
  }

  // The only ranks that this rank shares groups with, whatever their number; else nothing.
  static int32_t only_group(const RankFacts& rank) {
    int32_t only = -1;
    for (size_t i = 0; i < rank.groups.size(); ++i) {
      const GroupUse& group = rank.groups[i];
      if (group.size <= 1) continue;
      if (only >= 0 &&
          (group.ranks.empty() || rank.groups[static_cast<size_t>(only)].ranks != group.ranks)) {
        return -1;
      }
      if (only < 0) only = static_cast<int32_t>(i);
    }
    return only;
  }

  void add_rank(const RankFacts& rank) {
    std::vector<Traffic*> of_group;  // by index of the rank's groups
    for (const GroupUse& group : rank.groups) of_group.push_back(&traffic_of(group));
    const int32_t only = only_group(rank);
    for (const CollectiveUse& use : rank.collectives) {
      const int32_t group = use.group >= 0 ? use.group : only;
      if (group < 0) continue;
      Traffic& traffic = *of_group[static_cast<size_t>(group)];
      add_use(traffic, rank.rank, use.step, use.name, use.phase);
      ++traffic.group.uses;
      traffic.group.total_ns += use.duration_ns;
      traffic.group.bytes += use.bytes;
    }
  }

  // Kernels without a group that were found to be collectives of all ranks.
  void add_nameless(const std::vector<MatchedCollective>& collectives) {
    for (const MatchedCollective& collective : collectives) {
      if (!collective.group.empty() || !collective.whole) continue;
      GroupUse world;
      world.ranks = collective.ranks;
      world.size = static_cast<int32_t>(collective.ranks.size());
      Traffic& traffic = traffic_of(world);
      for (const auto& member : collective.members) {
        const RankFacts& rank = ranks_[static_cast<size_t>(member.rank_index)];
        const CollectiveUse& use = rank.collectives[static_cast<size_t>(member.use)];
        if (use.group >= 0 || only_group(rank) >= 0) continue;
        add_use(traffic, rank.rank, use.step, collective.name, use.phase);
        ++traffic.group.uses;
        traffic.group.total_ns += use.duration_ns;
      }
    }
  }

  static void add_use(
      Traffic& traffic, int32_t rank, int32_t step, const std::string& name, Phase phase) {
    traffic.rank_steps.insert({rank, step});
    const auto begins = [&](const char* word) { return name.rfind(word, 0) == 0; };
    if (begins("all_gather")) ++traffic.all_gather;
    if (begins("reduce_scatter")) {
      ++traffic.reduce_scatter;
      if (phase == Phase::kForward) ++traffic.reduce_scatter_forward;
    }
    if (begins("all_reduce")) {
      ++(phase == Phase::kForward    ? traffic.all_reduce_forward
         : phase == Phase::kBackward ? traffic.all_reduce_backward
                                     : traffic.all_reduce_other);
    }
    if (begins("all_to_all")) ++traffic.all_to_all;
    if (collective_shape(name) == CollectiveShape::kPointToPoint || name == "send_receive") {
      ++traffic.messages;
    }
  }

  void set_degree(int32_t& degree, int32_t size) { degree = std::max(degree, size); }

  void from_descriptions() {
    int32_t replicate = 1, shard = 1, data_context = 1;
    for (auto& [key, traffic] : traffic_) {
      const std::string role = role_of_description(traffic.group.description);
      traffic.group.role = role.empty() ? "unknown" : role;
      note_alone(traffic);
      if (traffic.size <= 1 || role.empty() || role == "world") continue;
      if (role == "tensor") set_degree(layout_.tensor, traffic.size);
      if (role == "pipeline") set_degree(layout_.pipeline, traffic.size);
      if (role == "context") set_degree(layout_.context, traffic.size);
      if (role == "expert") set_degree(layout_.expert, traffic.size);
      if (role == "data_context") set_degree(data_context, traffic.size);
      if (role == "data") {
        const bool copies = says_replicate(traffic.group.description);
        const bool shards = says_shard(traffic.group.description);
        if (copies && !shards) {
          set_degree(replicate, traffic.size);
        } else if (shards && !copies) {
          set_degree(shard, traffic.size);
        } else {
          set_degree(layout_.data, traffic.size);
        }
      }
      described_ = true;
      say("Group \"" + traffic.group.description + "\" of " + std::to_string(traffic.size) +
          " ranks: " + role + ".");
      note_sharding(traffic);
    }
    set_degree(layout_.data, replicate * shard);
    if (layout_.data == 1 && data_context > 1) {
      layout_.data = data_context / std::max(1, layout_.context);
    }
  }

  void note_sharding(const Traffic& traffic) {
    const std::string& role = traffic.group.role;
    if (role != "data" && role != "data_context") return;
    if (traffic.all_gather > 0 && traffic.reduce_scatter > 0) layout_.data_sharded = true;
  }

  // Sharding over one rank: the calls are made, nothing is divided.
  void note_alone(const Traffic& traffic) {
    if (traffic.size != 1 || traffic.group.role != "data") return;
    if (traffic.all_gather > 0 && traffic.reduce_scatter > 0) layout_.sharded_alone = true;
  }

  // For groups whose description is silent: the default group, "undefined", none.
  void from_traffic() {
    for (auto& [key, traffic] : traffic_) {
      if (traffic.group.role != "world" && traffic.group.role != "unknown") continue;
      if (traffic.size <= 1 || traffic.group.uses == 0) continue;
      const std::string who =
          "group \"" + traffic.group.name + "\" of " + std::to_string(traffic.size) + " ranks";
      std::string role;
      if (traffic.messages > 0 && stages_ > 1) role = "pipeline";
      if (traffic.all_to_all > 0) {
        set_degree(layout_.expert, traffic.size);
        say(count_text(traffic.per_step(traffic.all_to_all)) + " all-to-alls a step in " + who +
            ": experts, or embedding tables, spread over its ranks.");
        role = "expert";
      }
      const std::string dense = dense_role(traffic, who);
      if (!dense.empty()) role = dense;
      if (!role.empty()) traffic.group.role = role;
    }
  }

  std::string dense_role(const Traffic& traffic, const std::string& who) {
    const double gathers = traffic.per_step(traffic.all_gather);
    const double scatters = traffic.per_step(traffic.reduce_scatter);
    const double forward = traffic.per_step(traffic.all_reduce_forward);
    const double backward = traffic.per_step(traffic.all_reduce_backward);
    const double other = traffic.per_step(traffic.all_reduce_other);
    if (traffic.reduce_scatter_forward > 0 && gathers >= 1) {
      set_degree(layout_.tensor, traffic.size);
      say("Reduce-scatters in forward and all-gathers in " + who +
          ": tensor parallelism with the sequence sharded between.");
      return "tensor";
    }
    if (gathers >= 1 && scatters >= 1) {
      set_degree(layout_.data, traffic.size);
      layout_.data_sharded = true;
      say(count_text(gathers) + " all-gathers and " + count_text(scatters) +
          " reduce-scatters a step in " + who +
          ": data parallelism with parameters or gradients sharded (FSDP, ZeRO).");
      return "data";
    }
    // Data parallelism may average a loss or a norm in forward; activations go many times.
    const bool trains = backward > 0 || any_backward();
    if (forward >= 4 && (backward >= 4 || !trains)) {
      set_degree(layout_.tensor, traffic.size);
      say(count_text(forward + backward) + " all-reduces a step in forward" +
          (trains ? " and backward" : ", without a backward,") + " in " + who +
          ": activations of tensor parallelism.");
      return "tensor";
    }
    if (!trains && other >= 16) {
      set_degree(layout_.tensor, traffic.size);
      say(count_text(other) + " all-reduces a pass and no backward in " + who +
          ": activations of tensor parallelism.");
      return "tensor";
    }
    if (backward > 0 || (other > 0 && stages_ <= 1)) {
      set_degree(layout_.data, traffic.size);
      say(count_text(backward + other) + " all-reduces a step " +
          (backward > 0 ? "in backward, none of activations in forward, in " : "in ") + who +
          ": data parallelism.");
      return "data";
    }
    return "";
  }

  bool any_backward() const {
    return std::any_of(ranks_.begin(), ranks_.end(), [](const RankFacts& rank) {
      return rank.phase_ns[static_cast<size_t>(Phase::kBackward)] > 0 ||
             rank.phase_ns[static_cast<size_t>(Phase::kOptimizer)] > 0;
    });
  }

  void check_product() {
    const int64_t product =
        static_cast<int64_t>(layout_.data) * layout_.tensor * layout_.pipeline * layout_.context;
    if (layout_.world_size == 1) {
      layout_.known = true;
      layout_.confidence = "certain";
      say("One rank.");
      return;
    }
    layout_.known = !layout_.reasons.empty();
    if (!layout_.known) {
      layout_.confidence = "guess";
      say("No traffic between ranks was recorded, and no group's description tells.");
    } else if (product == layout_.world_size) {
      layout_.confidence = described_ ? "certain" : "likely";
      say("The degrees' product is the world size, " + std::to_string(product) + ".");
    } else {
      layout_.confidence = "guess";
      say("The degrees' product is " + std::to_string(product) + ", the world size " +
          std::to_string(layout_.world_size) + ": a direction is missing or was taken twice.");
    }
  }

  void list_groups() {
    for (auto& [key, traffic] : traffic_) {
      if (traffic.group.uses == 0 && (traffic.size <= 1 || traffic.group.role == "unknown")) {
        continue;
      }
      layout_.groups.push_back(std::move(traffic.group));
    }
    std::stable_sort(layout_.groups.begin(),
                     layout_.groups.end(),
                     [](const auto& a, const auto& b) { return a.total_ns > b.total_ns; });
  }

  const std::vector<RankFacts>& ranks_;
  const int32_t stages_;
  LayoutFacts layout_;
  bool described_ = false;
  std::map<GroupKey, Traffic> traffic_;
};

}  // namespace

LayoutFacts infer_layout(const std::vector<RankFacts>& ranks,
                         int32_t world_size,
                         const std::vector<MatchedCollective>& collectives,
                         int32_t pipeline_stages) {
  return Inference(ranks, world_size, pipeline_stages).run(collectives);
}

}  // namespace vitrine
