// Blocks replayed as CUDA graphs against blocks issued operation by operation: the same bits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <iostream>

#include "core/error.h"
#include "gpu/gpu.h"
#include "ops/gpu/precision.h"
#include "support/trainee.h"

namespace vitrine::testing {
namespace {

using ::testing::HasSubstr;

constexpr int kSteps = 30;

std::string text(const GraphCounts& counts) {
  return std::to_string(counts.replayed) + " replayed, " + std::to_string(counts.issued) +
         " issued, " + std::to_string(counts.captured) + " captured, " +
         std::to_string(counts.refused) + " refused " + counts.why_refused;
}

int64_t block_actions(const Engine& engine) {
  int64_t count = 0;
  for (const Action& action : engine.schedule().actions) {
    count += action.kind == ActionKind::kForward || action.kind == ActionKind::kBackward ? 1 : 0;
  }
  return count;
}

// Says where two runs part.
void expect_same(const Trained& issued, const Trained& replayed) {
  ASSERT_EQ(issued.losses.size(), replayed.losses.size());
  for (size_t i = 0; i < issued.losses.size(); ++i) {
    if (issued.losses[i] == replayed.losses[i] && issued.norms[i] == replayed.norms[i]) continue;
    ADD_FAILURE() << std::hexfloat << "first differs at step " << i << ": loss " << issued.losses[i]
                  << " issued, " << replayed.losses[i] << " replayed; norm " << issued.norms[i]
                  << " issued, " << replayed.norms[i] << " replayed";
    break;
  }
  for (const auto& [name, values] : issued.parameters) {
    const std::vector<float>& other = replayed.parameters.at(name);
    ASSERT_EQ(values.size(), other.size()) << name;
    size_t differ = 0, first = 0;
    for (size_t i = values.size(); i > 0; --i) {
      const auto bits = [](float value) { return std::bit_cast<uint32_t>(value); };
      if (bits(values[i - 1]) == bits(other[i - 1])) continue;
      ++differ;
      first = i - 1;
    }
    EXPECT_EQ(differ, 0u) << name << ": of " << values.size() << " values, the first at " << first
                          << ": " << values[first] << " issued, " << other[first] << " replayed";
  }
}

class GpuGraphs : public DeterministicGpu {
 protected:
  static Execution execution(Graphs graphs) {
    Execution made = gpu_execution(0);
    made.graphs = graphs;
    return made;
  }
};

struct Way {
  const char* name;
  DType dtype;
  bool recompute, ahead;
  Fp8Linears fp8 = Fp8Linears::kOff;
};

constexpr Way kWays[] = {{"F32", DType::kF32, false, false},
                         {"Bf16", DType::kBF16, false, false},
                         {"Bf16Ahead", DType::kBF16, false, true},
                         {"Bf16Recomputed", DType::kBF16, true, false},
                         {"F16", DType::kF16, false, false},
                         {"Fp8", DType::kBF16, false, false, Fp8Linears::kAllKept}};

void PrintTo(const Way& way, std::ostream* out) { *out << way.name; }

class GpuGraphsOf : public GpuGraphs,
                    public ::testing::WithParamInterface<std::tuple<Subject, Way>> {};

// Accumulation of two: gradients are written by one micro-batch, and added to by the next. In f16
// the scale is lowered by overflows at first.
TEST_P(GpuGraphsOf, GiveTheBitsOfIssuing) {
  Subject subject = std::get<0>(GetParam());
  const Way way = std::get<1>(GetParam());
  subject.fp8 = way.fp8;
  Strategy strategy = strategy_of(way.dtype);
  strategy.recompute = way.recompute;
  const double scale = way.dtype == DType::kF16 ? 0x1p30 : 1024;
  const auto train = [&](Graphs graphs, GraphCounts& counts, int64_t& last) {
    Trainee trainee(subject, execution(graphs), strategy, kSteps, scale);
    if (way.ahead) trainee.ask_ahead(false);
    Trained all;
    for (int i = 0; i < kSteps; ++i) {
      const int64_t before = trainee.engine().graph_counts().replayed;
      const StepReport report = trainee.step();
      if (!report.skipped) {  // NaN is not equal to itself
        all.losses.push_back(report.output.loss);
        all.norms.push_back(report.output.gradient_norm);
      }
      last = trainee.engine().graph_counts().replayed - before;
    }
    all.parameters = parameters_of(trainee.engine());
    counts = trainee.engine().graph_counts();
    return std::pair(all, block_actions(trainee.engine()));
  };
  GraphCounts off, on, measured;
  int64_t last = 0;
  const std::pair<Trained, int64_t> reference = train(Graphs::kOff, off, last);
  const Trained& issued = reference.first;
  const int64_t actions = reference.second;
  EXPECT_EQ(off.replayed + off.issued, 0);
  {
    SCOPED_TRACE("all that can be");
    const Trained replayed = train(Graphs::kOn, on, last).first;
    std::cout << "on:   " << text(on) << "; " << last << " of " << actions << " in the last step\n";
    expect_same(issued, replayed);
    EXPECT_EQ(on.refused, 0) << on.why_refused;
    EXPECT_GT(on.replayed, 0) << text(on);
    // Batches that come ahead take turns in more places.
    EXPECT_GE(last, way.ahead ? actions / 2 : actions) << "addresses do not repeat: " << text(on);
  }
  {
    SCOPED_TRACE("where it pays");
    const Trained replayed = train(Graphs::kAuto, measured, last).first;
    std::cout << "auto: " << text(measured) << "; " << last << " of " << actions
              << " in the last step\n";
    expect_same(issued, replayed);
    EXPECT_EQ(measured.refused, 0) << measured.why_refused;
    // Launches bind these models, on any host.
    EXPECT_GT(measured.replayed, 0) << text(measured);
  }
}

INSTANTIATE_TEST_SUITE_P(Models,
                         GpuGraphsOf,
                         ::testing::Combine(::testing::ValuesIn(kSubjects),
                                            ::testing::ValuesIn(kWays)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param).name) +
                                  std::get<1>(info.param).name;
                         });

TEST_F(GpuGraphs, EvaluationBetweenStepsChangesNothing) {
  int64_t evaluation_replayed = 0;
  const auto train = [&](Graphs graphs, std::vector<double>& evaluated) {
    Trainee trainee(kSubjects[0], execution(graphs), strategy_of(DType::kBF16));
    const OwnedBatch batch = trainee.batch(1000);
    Trained all;
    for (int part = 0; part < 4; ++part) {
      const Trained some = trainee.train(5);
      all.losses.insert(all.losses.end(), some.losses.begin(), some.losses.end());
      all.norms.insert(all.norms.end(), some.norms.begin(), some.norms.end());
      const int64_t before = trainee.engine().graph_counts().replayed;
      for (int i = 0; i < 3; ++i) {
        evaluated.push_back(trainee.engine().evaluate(batch.views).loss);
      }
      evaluation_replayed += trainee.engine().graph_counts().replayed - before;
      all.parameters = some.parameters;
    }
    std::cout << text(trainee.engine().graph_counts()) << "\n";
    return all;
  };
  std::vector<double> plain, graphed;
  const Trained issued = train(Graphs::kOff, plain), replayed = train(Graphs::kOn, graphed);
  expect_same(issued, replayed);
  EXPECT_EQ(plain, graphed);
  EXPECT_GT(evaluation_replayed, 0);
}

// While a recorder looks on, every operation is issued by itself.
TEST_F(GpuGraphs, RecordedStepsAreIssued) {
  RecorderOptions window;
  window.active = 0;
  Recorder recorder(0, 1, window);
  Trainee trainee(
      kSubjects[0], execution(Graphs::kOn), strategy_of(DType::kBF16), 20, 1024, &recorder);
  const auto replayed_in = [&](int steps) {
    const int64_t before = trainee.engine().graph_counts().replayed;
    for (int i = 0; i < steps; ++i) trainee.step();
    return trainee.engine().graph_counts().replayed - before;
  };
  EXPECT_GT(replayed_in(6), 0);
  recorder.start();
  for (int i = 0; i < 2; ++i) {
    recorder.begin_step(trainee.engine().steps_done());
    EXPECT_EQ(replayed_in(1), 0);
    recorder.end_step();
  }
  recorder.stop();
  RankTimeline timeline = recorder.take();
  trainee.engine().add_gpu_records(timeline);
  EXPECT_GT(replayed_in(3), 0);
}

// --- operations that no graph can hold

Device* spoiler = nullptr;
OpKernels plain_embedding;
int mode = 0;

void spoil() {
  const float number = 1;
  void* block = nullptr;
  switch (mode) {
    case 0:
      return spoiler->synchronize_lane();
    case 1:
      block = spoiler->allocate(512);
      spoiler->upload(block, &number, sizeof number);
      return spoiler->release(block, 512);
    case 2:
      return spoiler->mark(1000);  // beyond those of a step
    case 3:
      return;
    default:
      throw ShapeError("embedding: of this test");
  }
}

void spoiled_embedding(const OpCall& call) {
  spoil();
  plain_embedding.forward(call);
}

TEST_F(GpuGraphs, WhatCannotBeRecordedIsIssuedForGood) {
  const Trained expected =
      Trainee(kSubjects[0], execution(Graphs::kOff), strategy_of(DType::kBF16)).train(8);
  Backend backend = gpu_backend();
  plain_embedding = backend.kernels("embedding");
  backend.add("embedding", {spoiled_embedding, plain_embedding.backward});
  for (mode = 0; mode < 3; ++mode) {
    SCOPED_TRACE(mode);
    Execution spoiled = execution(Graphs::kOn);
    spoiled.backend = &backend;
    spoiler = spoiled.device.get();
    Trainee trainee(kSubjects[0], spoiled, strategy_of(DType::kBF16));
    expect_same(expected, trainee.train(8));
    const GraphCounts counts = trainee.engine().graph_counts();
    std::cout << text(counts) << "\n";
    EXPECT_EQ(counts.refused, 1);
    EXPECT_THAT(counts.why_refused, HasSubstr("cannot be captured"));
    EXPECT_GT(counts.replayed, 0);
  }
  // An error of an operation is told as ever.
  Execution failing = execution(Graphs::kOn);
  failing.backend = &backend;
  spoiler = failing.device.get();
  mode = 3;
  Trainee trainee(kSubjects[0], failing, strategy_of(DType::kBF16));
  trainee.step();
  mode = 4;
  EXPECT_THROW(trainee.step(), ShapeError);
}

// --- the device by itself

TEST_F(GpuGraphs, DeviceRecordsWorkAndRefusesTheRest) {
  const std::unique_ptr<Device> device = make_gpu_device(0);
  device->enter_lane(0);
  constexpr size_t kBytes = 4096;
  std::vector<float> ones(kBytes / 4, 1.0f), read(kBytes / 4);
  void *a = device->allocate(kBytes), *b = device->allocate(kBytes);
  const auto first_of = [&](void* block) {
    device->download(read.data(), block, kBytes);
    return read[0];
  };
  device->upload(a, ones.data(), kBytes);
  device->zero(b, kBytes);

  std::string why;
  const auto add = [&] { device->add(DType::kF32, b, a, kBytes / 4); };
  add();  // kernels are loaded by their first call
  const auto sum = device->capture_work(add, why);
  ASSERT_NE(sum, nullptr) << why;
  EXPECT_EQ(first_of(b), 1.0f) << "recording did the work";
  for (int i = 2; i < 5; ++i) {
    sum->issue();
    EXPECT_EQ(first_of(b), static_cast<float>(i));
  }
  const auto sets = device->capture_work(
      [&] {
        device->zero(b, kBytes);
        device->copy(b, a, kBytes);
        add();
      },
      why);
  ASSERT_NE(sets, nullptr) << why;
  sets->issue();
  EXPECT_EQ(first_of(b), 2.0f);

  device->mark(0);
  const std::shared_ptr<void> point = device->point();
  const std::pair<const char*, std::function<void()>> refused[] = {
      {"synchronize_lane", [&] { device->synchronize_lane(); }},
      {"download", [&] { device->download(read.data(), a, kBytes); }},
      {"upload", [&] { device->upload(a, ones.data(), kBytes); }},
      {"allocate", [&] { device->release(device->allocate(kBytes), kBytes); }},
      {"release", [&] { device->release(std::exchange(a, nullptr), kBytes); }},
      {"mark", [&] { device->mark(0); }},
      {"wait", [&] { device->wait(0); }},
      {"after", [&] { device->after(point); }},
      {"exception", [] { throw 3; }},
      {"error", [] { throw ConfigError("no"); }}};
  for (const auto& [name, issue] : refused) {
    SCOPED_TRACE(name);
    why.clear();
    EXPECT_EQ(device->capture_work(
                  [&, &call = issue] {
                    device->zero(b, kBytes);
                    call();
                  },
                  why),
              nullptr);
    EXPECT_NE(why, "");
    EXPECT_EQ(first_of(b), 2.0f) << "what was refused has been done";
    device->synchronize();  // nothing is left behind
  }
  // Recording still works, and so does the memory that was given back meanwhile.
  a = device->allocate(kBytes);
  device->upload(a, ones.data(), kBytes);
  const auto again = device->capture_work(add, why);
  ASSERT_NE(again, nullptr) << why;
  again->issue();
  EXPECT_EQ(first_of(b), 3.0f);
  device->release(a, kBytes);
  device->release(b, kBytes);
}

TEST_F(GpuGraphs, FreeBlocksComeInTheSameOrderAgain) {
  const std::unique_ptr<Device> device = make_gpu_device(0);
  device->enter_lane(0);
  const auto round = [&](std::initializer_list<int> freed) {
    device->order_free_blocks();
    std::vector<void*> taken;
    for (int i = 0; i < 3; ++i) taken.push_back(device->allocate(1000));
    for (const int i : freed) device->release(taken[static_cast<size_t>(i)], 1000);
    return taken;
  };
  round({0, 1, 2});
  const auto first = round({2, 0, 1});
  EXPECT_EQ(round({1, 0, 2}), first);
  EXPECT_EQ(round({0, 2, 1}), first);
}

}  // namespace
}  // namespace vitrine::testing
