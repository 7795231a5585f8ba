// Gathering and reducing of units, in buckets laid out rank-major.
#include "run/collectives.h"

#include <algorithm>
#include <optional>

#include "core/device.h"
#include "core/error.h"

namespace vitrine {
namespace {

std::vector<int> all_ranks(int size) {
  std::vector<int> ranks(static_cast<size_t>(size));
  for (int r = 0; r < size; ++r) ranks[static_cast<size_t>(r)] = r;
  return ranks;
}

// Where each unit's pieces lie in a bucket: rank r's part of the bucket holds the r-th pieces of
// its units. Pieces carry no padding, so parts may differ in size.
struct BucketLayout {
  std::vector<std::vector<int64_t>> piece;  // [unit][rank] elements
  std::vector<int64_t> part, part_begin;    // [rank] elements
  int64_t total = 0;

  BucketLayout(const ShardStore& store, const std::vector<int>& units) {
    const int ranks = store.ranks();
    part.assign(static_cast<size_t>(ranks), 0);
    for (const int u : units) {
      const int64_t elements = store.table().units[static_cast<size_t>(u)].elements;
      piece.emplace_back();
      for (int r = 0; r < ranks; ++r) {
        piece.back().push_back(shard_range(elements, r, ranks).size());
        part[static_cast<size_t>(r)] += piece.back().back();
      }
    }
    for (const int64_t elements : part) {
      part_begin.push_back(total);
      total += elements;
    }
  }
};

// Copies between units' full buffers (their pieces `padded` apart) and a rank-major bucket.
template <typename FullOf>
void copy_bucket(const BucketLayout& layout,
                 const ShardStore& store,
                 Device& device,
                 const std::vector<int>& units,
                 size_t element_bytes,
                 std::byte* bucket,
                 bool into_bucket,
                 int only_rank,
                 FullOf full_of) {
  const auto ranks = layout.part.size();
  for (size_t r = 0; r < ranks; ++r) {
    if (only_rank >= 0 && r != static_cast<size_t>(only_rank)) continue;
    auto at = static_cast<size_t>(layout.part_begin[r]);
    for (size_t i = 0; i < units.size(); ++i) {
      const auto count = static_cast<size_t>(layout.piece[i][r]);
      const auto padded = static_cast<size_t>(store.shard(units[i]).padded);
      std::byte* full = static_cast<std::byte*>(full_of(units[i])) + r * padded * element_bytes;
      std::byte* packed = bucket + at * element_bytes;
      if (count > 0) {
        device.copy(
            into_bucket ? packed : full, into_bucket ? full : packed, count * element_bytes);
      }
      at += count;
    }
  }
}

// A unit by itself is summed where its sum belongs, if nothing is there that it is added to.
bool summed_in_place(const ShardStore& store, const Action& reduction) {
  const Sharding& shard = store.strategy().shard;
  return reduction.units.size() == 1 && shard.optimizer &&
         (!shard.gradients || reduction.first_micro);
}

// Of one unit, and nothing will be added to it: the norm can take its squares.
bool sum_is_final(const ShardStore& store, const Action& reduction) {
  const Strategy& strategy = store.strategy();
  return reduction.units.size() == 1 && (!strategy.shard.gradients || strategy.accumulation == 1);
}

// While it lives, reductions of one unit add their squares to a step's, where `comm` can do that.
class AddingSquares final : public TermAdder {
 public:
  static_assert(kChunk % kNormChunk == 0);
  // `begin`: of this rank's shard in the unit.
  AddingSquares(Communicator& comm, DType dtype, StepMath& math, int64_t begin)
      : comm_(comm), dtype_(dtype), math_(math), begin_(begin) {
    adds_ = comm.sum_through(this, dtype);
  }
  ~AddingSquares() override { comm_.sum_through(nullptr, dtype_); }
  AddingSquares(const AddingSquares&) = delete;
  AddingSquares& operator=(const AddingSquares&) = delete;
  bool adds() const { return adds_; }
  void add(void* out,
           std::span<const void* const> terms,
           int64_t first,
           int64_t count,
           DType dtype) override {
    math_.sum_adding_squares(out, terms, dtype, begin_ + first, begin_ + first + count);
  }

 private:
  Communicator& comm_;
  const DType dtype_;
  StepMath& math_;
  const int64_t begin_;
  bool adds_ = false;
};

std::vector<int64_t> scaled(const std::vector<int64_t>& counts, size_t factor) {
  std::vector<int64_t> bytes;
  for (const int64_t count : counts) bytes.push_back(count * static_cast<int64_t>(factor));
  return bytes;
}

}  // namespace

LaneCommunicators::LaneCommunicators(World* world,
                                     const Strategy& strategy,
                                     const MeshPlace& place,
                                     MemoryLedger& ledger)
    : world_(world), ledger_(ledger) {
  if (alone()) return;
  // Every rank makes the groups it is in, in the same order.
  if (strategy.mesh.data > 1) {
    for (const LaneId lane : {LaneId::kCompute, LaneId::kGather, LaneId::kReduce}) {
      data_[lane] = world_->group(place.data_group,
                                  "stage" + std::to_string(place.stage) + "." + lane_name(lane));
    }
  }
  control_ = world_->host_group(all_ranks(world->size()), "control");
  totals_ =
      ledger.device().is_host() ? control_ : world_->group(all_ranks(world->size()), "totals");
  const auto& group = place.pipeline_group;
  for (size_t a = 0; a < group.size(); ++a) {
    for (size_t b = a + 1; b < group.size(); ++b) {
      if (group[a] != place.rank && group[b] != place.rank) continue;
      const int peer = group[a] == place.rank ? group[b] : group[a];
      for (const bool down : {true, false}) {
        pairs_[{peer, down}] =
            world_->group({group[a], group[b]},
                          "ranks" + std::to_string(group[a]) + "-" + std::to_string(group[b]) +
                              (down ? ".down" : ".up"));
      }
    }
  }
}

void LaneCommunicators::share(const ShardStore& store, const Schedule& schedule) {
  // Between stages NCCL's sends and receives wait on the device for hosts that may wait here.
  if (store.strategy().mesh.pipeline > 1) return;
  const size_t parameter = dtype_bytes(store.strategy().compute_dtype);
  const size_t gradient = dtype_bytes(store.strategy().gradient_dtype);
  for (auto& [lane, comm] : data_) {
    size_t most_reduced = 0;
    bool used = false, gathers = false;
    for (const Action& action : schedule.actions) {
      if (action.lane != lane) continue;
      if (action.kind == ActionKind::kGather || action.kind == ActionKind::kPublish) {
        used = gathers = true;
      } else if (action.kind == ActionKind::kReduce) {
        used = true;
        const BucketLayout layout(store, action.units);
        most_reduced = std::max(most_reduced, static_cast<size_t>(layout.total) * gradient);
      }
    }
    if (!used) continue;
    // Every unit: evaluation and variants of the model may gather others than this schedule.
    std::vector<std::span<const std::byte>> pieces(store.table().units.size());
    for (size_t u = 0; gathers && u < pieces.size(); ++u) {
      const int unit = static_cast<int>(u);
      if (!store.local(unit)) continue;
      pieces[u] = {static_cast<const std::byte*>(store.parameter_shard(unit)),
                   static_cast<size_t>(store.shard(unit).size()) * parameter};
    }
    Buffer window;
    try {
      if (const size_t bytes = comm->window_bytes(most_reduced); bytes > 0)
        window = Buffer(ledger_, MemoryCategory::kCommunication, "peers' terms", bytes);
    } catch (const OutOfMemory&) {  // without it nothing is shared
    }
    if (!comm->share(pieces, {static_cast<std::byte*>(window.data()), window.bytes()})) continue;
    shared_.push_back(comm.get());
    windows_.push_back(std::move(window));
  }
}

Communicator& LaneCommunicators::data(LaneId lane) {
  const auto it = data_.find(lane);
  VITRINE_ASSERT(it != data_.end());
  return *it->second;
}

Communicator& LaneCommunicators::pair(int peer, bool down) {
  const auto it = pairs_.find({peer, down});
  VITRINE_ASSERT(it != pairs_.end());
  return *it->second;
}

CallTraffic LaneCommunicators::gather_parameters(Communicator& comm,
                                                 ShardStore& store,
                                                 const std::vector<int>& units) {
  const size_t element = dtype_bytes(store.strategy().compute_dtype);
  const BucketLayout layout(store, units);
  const auto own = static_cast<size_t>(comm.rank());
  const auto own_elements = static_cast<size_t>(layout.part[own]);
  CallTraffic traffic;
  traffic.in_elements = layout.part[own];
  traffic.out_elements = layout.total;
  traffic.sent_bytes = static_cast<int64_t>(own_elements * element) * (comm.size() - 1);
  if (std::find(shared_.begin(), shared_.end(), &comm) != shared_.end()) {
    for (size_t i = 0; i < units.size(); ++i) {
      const int64_t all = store.table().units[static_cast<size_t>(units[i])].elements;
      comm.gather_shared(static_cast<size_t>(units[i]),
                         {static_cast<std::byte*>(store.full_parameters(units[i])),
                          static_cast<size_t>(all) * element},
                         scaled(layout.piece[i], element));
    }
    return traffic;
  }
  const std::vector<int64_t> part_bytes = scaled(layout.part, element);
  if (units.size() == 1) {  // a single unit's pieces are rank-major as they lie
    auto* full = static_cast<std::byte*>(store.full_parameters(units[0]));
    const std::byte* mine = static_cast<const std::byte*>(store.parameter_shard(units[0]));
    comm.all_gather_v({mine, own_elements * element},
                      {full, static_cast<size_t>(layout.total) * element},
                      part_bytes);
    return traffic;
  }
  const auto full_of = [&](int u) { return store.full_parameters(u); };
  const size_t bytes = static_cast<size_t>(layout.total) * element;
  const Buffer staging(ledger_, MemoryCategory::kCommunication, "gather bucket", bytes);
  auto* bucket = static_cast<std::byte*>(staging.data());
  copy_bucket(layout, store, ledger_.device(), units, element, bucket, true, comm.rank(), full_of);
  comm.all_gather_v(
      {bucket + static_cast<size_t>(layout.part_begin[own]) * element, own_elements * element},
      {bucket, bytes},
      part_bytes);
  for (size_t r = 0; r < layout.part.size(); ++r) {
    if (r != own) {
      copy_bucket(layout,
                  store,
                  ledger_.device(),
                  units,
                  element,
                  bucket,
                  false,
                  static_cast<int>(r),
                  full_of);
    }
  }
  return traffic;
}

LaneCommunicators::Room& LaneCommunicators::room_of(const Action& action) {
  const std::lock_guard lock(mutex_);
  return rooms_[action.units[0]];
}

void LaneCommunicators::reserve_reduction(const ShardStore& store, const Action& reserve) {
  const DType dtype = store.strategy().gradient_dtype;
  const size_t element = dtype_bytes(dtype);
  const BucketLayout layout(store, reserve.units);
  const Communicator& comm = data(LaneId::kReduce);
  const auto buffer = [&](const char* holder, size_t bytes) {
    return bytes > 0 ? Buffer(ledger_, MemoryCategory::kCommunication, holder, bytes) : Buffer();
  };
  Room& room = room_of(reserve);
  VITRINE_ASSERT(!room.bucket && !room.sum && !room.received);
  if (!summed_in_place(store, reserve)) {
    room.sum = buffer("reduced pieces",
                      static_cast<size_t>(layout.part[static_cast<size_t>(comm.rank())]) * element);
  }
  if (reserve.units.size() > 1)
    room.bucket = buffer("reduce bucket", static_cast<size_t>(layout.total) * element);
  room.received = buffer("received pieces", comm.reduce_scratch(layout.part, dtype));
}

void LaneCommunicators::release_reduction(ShardStore& store, const Action& release) {
  room_of(release) = {};
  for (const int u : release.units) store.close_full_gradients(u);
}

CallTraffic LaneCommunicators::reduce_gradients(Communicator& comm,
                                                ShardStore& store,
                                                StepMath& math,
                                                const Action& reduce) {
  const std::vector<int>& units = reduce.units;
  const DType dtype = store.strategy().gradient_dtype;
  const size_t element = dtype_bytes(dtype);
  const BucketLayout layout(store, units);
  const auto own = static_cast<size_t>(comm.rank());
  const auto own_bytes = static_cast<size_t>(layout.part[own]) * element;
  const auto full_of = [&](int u) { return store.full_gradients(u); };
  for (const int u : units) store.settle_gradients(u);

  const Sharding& shard = store.strategy().shard;
  const bool in_place = summed_in_place(store, reduce);
  const Room& room = room_of(reduce);
  auto* bucket = static_cast<std::byte*>(full_of(units[0]));
  if (units.size() > 1) {
    bucket = static_cast<std::byte*>(room.bucket.data());
    copy_bucket(layout, store, ledger_.device(), units, element, bucket, true, -1, full_of);
  }
  auto* sum =
      static_cast<std::byte*>(in_place ? store.reduced_gradient(units[0]) : room.sum.data());
  comm.lend({static_cast<std::byte*>(room.received.data()), room.received.bytes()});
  {
    std::optional<AddingSquares> squares;
    if (sum_is_final(store, reduce))
      squares.emplace(comm, dtype, math, store.shard(units[0]).begin);
    comm.reduce_scatter_v(bucket, layout.part, sum, dtype);
    if (squares && squares->adds()) store.set_squared(units[0]);
  }
  comm.lend({});
  CallTraffic traffic;
  traffic.in_elements = layout.total;
  traffic.out_elements = layout.part[own];
  traffic.sent_bytes = (layout.total - layout.part[own]) * static_cast<int64_t>(element);

  if (!shard.optimizer) {  // stage 0: everyone gets every sum
    comm.all_gather_v({sum, own_bytes},
                      {bucket, static_cast<size_t>(layout.total) * element},
                      scaled(layout.part, element));
    traffic.sent_bytes += static_cast<int64_t>(own_bytes) * (comm.size() - 1);
    if (units.size() > 1)
      copy_bucket(layout, store, ledger_.device(), units, element, bucket, false, -1, full_of);
    return traffic;
  }
  for (size_t i = 0; !in_place && i < units.size(); ++i) {
    const auto bytes = static_cast<size_t>(layout.piece[i][own]) * element;
    if (shard.gradients) {
      store.accumulate_shard(units[i], sum, reduce.first_micro);
    } else {
      ledger_.device().copy(store.reduced_gradient(units[i]), sum, bytes);
    }
    sum += bytes;
  }
  return traffic;
}

}  // namespace vitrine
