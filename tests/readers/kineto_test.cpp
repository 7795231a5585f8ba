// PyTorch's dialect in all its ages, and files that are no traces.
#include "readers/kineto.h"

#include <gtest/gtest.h>

#include "core/json.h"
#include "readers/decimal.h"
#include "support/temporary_folder.h"

namespace vitrine {
namespace {

RankTimeline read_text(const std::string& text,
                       const std::string& name = "trace.json",
                       const KinetoOptions& options = {}) {
  const TemporaryFolder folder;
  write_text_file(folder / name, text);
  return read_kineto(folder / name, options);
}

std::string trace(const std::string& events, const std::string& head = "") {
  return "{" + head + "\"traceEvents\": [" + events + "]}";
}

TEST(Decimal, KeepsNanosecondsThatADoubleLoses) {
  int64_t ns = 0;
  ASSERT_TRUE(microseconds_to_ns("1711435732009012.345", ns));
  EXPECT_EQ(ns, 1711435732009012345);
  ASSERT_TRUE(microseconds_to_ns("0.0015", ns));
  EXPECT_EQ(ns, 2);
  ASSERT_TRUE(microseconds_to_ns("-7", ns));
  EXPECT_EQ(ns, -7000);
  ASSERT_TRUE(microseconds_to_ns("1.5e3", ns));
  EXPECT_EQ(ns, 1500000);
  ASSERT_TRUE(microseconds_to_ns("25e-2", ns));
  EXPECT_EQ(ns, 250);
  ASSERT_TRUE(microseconds_to_ns("\"12.25\"", ns));
  EXPECT_EQ(ns, 12250);
  ASSERT_TRUE(microseconds_to_ns("1.00000000000000000000000000000000000000000001", ns));
  EXPECT_EQ(ns, 1000);
}

TEST(Decimal, RefusesWhatIsNoTime) {
  int64_t ns = 0;
  for (const char* text : {"", "null", "true", "9223372036854775807", "1e40", "."}) {
    EXPECT_FALSE(microseconds_to_ns(text, ns)) << text;
  }
}

TEST(Decimal, FindsNumbersInsideTexts) {
  EXPECT_EQ(first_integer("stream 7 "), 7);
  EXPECT_EQ(first_integer("-1"), -1);
  EXPECT_EQ(first_integer("none"), 0);
  EXPECT_EQ(static_cast<uint64_t>(first_integer("18446744073709551615")), UINT64_MAX);
}

TEST(Kineto, ReadsKernelsWithTheirStepByLaunch) {
  const RankTimeline t = read_text(trace(R"J(
    {"ph":"X","cat":"user_annotation","name":"ProfilerStep#12","pid":9,"tid":9,"ts":100,"dur":50},
    {"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":9,"tid":9,"ts":140,"dur":2,"args":{"correlation":5}},
    {"ph":"X","cat":"kernel","name":"gemm","pid":0,"tid":7,"ts":160.25,"dur":10.001,"args":{"stream":7,"correlation":5}},
    {"ph":"X","cat":"gpu_memcpy","name":"Memcpy HtoD","pid":0,"tid":7,"ts":171,"dur":1,"args":{}},
    {"ph":"M","name":"thread_name","pid":0,"tid":7,"args":{"name":"stream 7 "}})J",
                                         R"("baseTimeNanoseconds": 1700000000000000000,)"));
  ASSERT_EQ(t.spans.size(), 4u);
  EXPECT_EQ(t.wall_anchor_ns, 1700000000000000000);
  EXPECT_EQ(t.spans.kind,
            (std::vector{SpanKind::kStep, SpanKind::kRuntime, SpanKind::kKernel, SpanKind::kCopy}));
  EXPECT_EQ(t.spans.start_ns[2], 160250);
  EXPECT_EQ(t.spans.duration_ns[2], 10001);
  EXPECT_EQ(t.spans.step[2], 12);  // launched in it, run after it
  EXPECT_EQ(t.spans.step[3], -1);
  const Lane& lane = t.lanes[static_cast<size_t>(t.spans.lane[2])];
  EXPECT_EQ(lane.name, "stream 7");
  EXPECT_TRUE(lane.device);
  EXPECT_EQ(lane.tid, 7);
}

TEST(Kineto, ReadsCollectivesAndCountsWhatARingSends) {
  const RankTimeline t =
      read_text(trace(R"J(
    {"ph":"X","cat":"kernel","name":"ncclDevKernel_AllGather_RING_LL(x)","pid":0,"tid":22,"ts":1,"dur":5,
     "args":{
  "Collective name" : "_allgather_base",
                      "In msg nelems" : 10,
                      "Out msg nelems" : 40,
                      "Group size" : 4,
                      "dtype" : "BFloat16",
                                "Process Group Name" : "1",
                                                       "Process Group Ranks" : "[0, 2, 4, 6]",
                                                                               "Seq" : 17}},
    {"ph":"X","cat":"kernel","name":"ncclDevKernel_AllReduce_Sum_f32","pid":0,"tid":22,"ts":7,"dur":5,
     "args":{"Collective name":"allreduce","In msg nelems":100,"Out msg nelems":100,"Group size":4,
             "dtype":"Float","Process Group Name":"1","Process Group Ranks":"[0, ..., 6]"}})J",
                      R"("distributedInfo": {"rank": 2, "world_size": 8, "pg_config":
                                           [{"pg_name":"1","pg_size":4,"ranks":[0,2,4,6]}]},)"));
  EXPECT_EQ(t.rank, 2);
  EXPECT_EQ(t.world_size, 8);
  ASSERT_EQ(t.collectives.size(), 2u);
  const Collective &gather = t.collectives[0], &reduce = t.collectives[1];
  EXPECT_EQ(t.strings[gather.name], "all_gather");
  EXPECT_EQ(t.strings[gather.dtype], "bf16");
  EXPECT_EQ(gather.sequence, 17);
  EXPECT_EQ(gather.sent_bytes, 10 * 2 * 3);
  EXPECT_EQ(gather.ranks, (std::vector<int32_t>{0, 2, 4, 6}));
  EXPECT_EQ(reduce.ranks, gather.ranks);  // left out in the event, given by the group
  EXPECT_EQ(reduce.sequence, 1);          // second of its group and lane
  EXPECT_EQ(reduce.sent_bytes, 2 * 3 * 100);
  EXPECT_EQ(t.spans.kind[0], SpanKind::kGather);
  EXPECT_EQ(t.spans.kind[1], SpanKind::kReduce);
}

TEST(Kineto, GivesBareSendsTheArgumentsOfTheCallThatLaunchedThem) {
  const RankTimeline t = read_text(trace(R"J(
    {"ph":"X","cat":"cpu_op","name":"record_param_comms","pid":9,"tid":9,"ts":10,"dur":60,
     "args":{"Collective name":"send","In msg nelems":8,"Out msg nelems":8,"Group size":2,"dtype":"Half",
             "Process Group Name":"0","Process Group Ranks":"[0, 1]","Dst Rank":1}},
    {"ph":"X","cat":"cuda_driver","name":"cuLaunchKernelEx","pid":9,"tid":9,"ts":30,"dur":5,"args":{"correlation":3}},
    {"ph":"X","cat":"kernel","name":"ncclDevKernel_SendRecv(x)","pid":0,"tid":17,"ts":90,"dur":5,"args":{
  "correlation" : 3}},
    {"ph":"X","cat":"kernel","name":"ncclDevKernel_SendRecv(x)","pid":0,"tid":17,"ts":99,"dur":5,"args":{"correlation":4}})J"));
  EXPECT_EQ(t.spans.kind[2], SpanKind::kSend);
  ASSERT_EQ(t.spans.collective[2], 0);
  EXPECT_EQ(t.collectives[0].peer, 1);
  EXPECT_EQ(t.collectives[0].sent_bytes, 16);
  EXPECT_EQ(t.spans.kind[3], SpanKind::kCollective);  // communication all the same
  EXPECT_EQ(t.spans.collective[3], -1);
}

TEST(Kineto, KnowsCommunicationWithoutNcclInItsName) {
  const RankTimeline t = read_text(trace(R"J(
    {"ph":"X","cat":"kernel","name":"multimem_all_reduce_kernel<4>","pid":0,"tid":7,"ts":1,"dur":1},
    {"ph":"X","cat":"kernel","name":"dpsk::ep::internode::dispatch<1>","pid":0,"tid":7,"ts":3,"dur":1},
    {"ph":"X","cat":"kernel","name":"reduce_kernel<512>","pid":0,"tid":7,"ts":5,"dur":1})J"));
  EXPECT_EQ(t.spans.kind,
            (std::vector{SpanKind::kReduce, SpanKind::kCollective, SpanKind::kKernel}));
}

TEST(Kineto, TellsDataLoadingAndRegionsApart) {
  const RankTimeline t = read_text(trace(R"J(
    {"ph":"X","cat":"user_annotation","name":"enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__","pid":1,"tid":1,"ts":1,"dur":1},
    {"ph":"X","cat":"user_annotation","name":"data","pid":1,"tid":1,"ts":3,"dur":1},
    {"ph":"X","cat":"user_annotation","name":"forward on data","pid":1,"tid":1,"ts":5,"dur":1})J"));
  EXPECT_EQ(t.spans.kind, (std::vector{SpanKind::kData, SpanKind::kData, SpanKind::kRegion}));
}

TEST(Kineto, KeepsTheAllocatorsCalls) {
  const RankTimeline t = read_text(trace(R"J(
    {"ph":"i","cat":"cpu_instant_event","s":"t","name":"[memory]","pid":1,"tid":1,"ts":2.5,
     "args":{"Total Reserved":4096,"Total Allocated":1024,"Bytes":512,"Device Id":1,"Device Type":1,"Addr":18446744073709551615}},
    {"ph":"i","cat":"cpu_instant_event","s":"t","name":"[memory]","pid":1,"tid":1,"ts":1.5,
     "args":{"Bytes":-64,"Device Id":-1,"Device Type":0,"Addr":16}})J"));
  ASSERT_EQ(t.allocations.size(), 2u);  // in order of time
  const AllocationEvent &host = t.allocations[0], &card = t.allocations[1];
  EXPECT_EQ(host.bytes, -64);
  EXPECT_EQ(host.device_index, -1);
  EXPECT_EQ(host.allocated, -1);
  EXPECT_EQ(card.time_ns, 2500);
  EXPECT_EQ(card.address, UINT64_MAX);
  EXPECT_EQ(card.bytes, 512);
  EXPECT_EQ(card.allocated, 1024);
  EXPECT_EQ(card.reserved, 4096);
  EXPECT_EQ(card.device_index, 1);
  EXPECT_TRUE(t.counters.empty());
}

TEST(Kineto, KeepsCountersByNameAndSeries) {
  const RankTimeline t = read_text(trace(R"J(
    {"ph":"C","name":"power","pid":0,"ts":2,"args":{"value":312.5}},
    {"ph":"C","name":"GPU 0","pid":0,"ts":1,"args":{"temperature":61,"clock":1980}})J"));
  ASSERT_EQ(t.counters.size(), 3u);
  EXPECT_EQ(t.strings[t.counters[0].name], "GPU 0: temperature");
  EXPECT_EQ(t.strings[t.counters[1].name], "GPU 0: clock");
  EXPECT_EQ(t.counters[1].value, 1980);
  EXPECT_EQ(t.strings[t.counters[2].name], "power");
  EXPECT_EQ(t.counters[2].value, 312.5);
}

TEST(Kineto, KeepsShapesOfOperatorsAndBytesOfCopies) {
  const RankTimeline t = read_text(trace(R"J(
    {"ph":"X","cat":"cpu_op","name":"aten::mm","pid":1,"tid":1,"ts":1,"dur":1,"args":{"Input Dims":[[4, 8], [8, 2], []],"Input type":["float"]}},
    {"ph":"X","cat":"cpu_op","name":"aten::t","pid":1,"tid":1,"ts":3,"dur":1,"args":{"External id":7}},
    {"ph":"X","cat":"gpu_memcpy","name":"Memcpy HtoD","pid":2,"tid":7,"ts":5,"dur":1,"args":{"device":2,"bytes":4096}})J"));
  EXPECT_EQ(t.strings[t.spans.shapes[0]], "[[4, 8], [8, 2], []]");
  EXPECT_EQ(t.spans.shapes[1], kNoString);
  EXPECT_EQ(t.spans.bytes, (std::vector<int64_t>{0, 0, 4096}));
  EXPECT_EQ(t.lanes[static_cast<size_t>(t.spans.lane[2])].device_index, 2);
  EXPECT_EQ(t.lanes[static_cast<size_t>(t.spans.lane[0])].device_index, -1);
}

TEST(Kineto, ListsGroupsOfTheConfigurationAndOfCollectives) {
  const RankTimeline t = read_text(trace(R"J(
    {"ph":"X","cat":"kernel","name":"ncclDevKernel_AllReduce","pid":0,"tid":22,"ts":1,"dur":5,
     "args":{"Collective name":"allreduce","dtype":"Float","In msg nelems":4,"Out msg nelems":4,"Group size":2,
             "Process Group Name":"5","Process Group Description":"TENSOR_MODEL_PARALLEL_GROUP","Process Group Ranks":"[2, 3]"}},
    {"ph":"X","cat":"kernel","name":"ncclDevKernel_AllReduce","pid":0,"tid":22,"ts":7,"dur":5,
     "args":{"Collective name":"allreduce","dtype":"Float","In msg nelems":4,"Out msg nelems":4,"Group size":4096,
             "Process Group Name":"0","Process Group Ranks":"[0, 1, ..., 4095]"}})J",
                                         R"("distributedInfo": {"rank": 2, "pg_config": [
     {"pg_name":"0","pg_desc":"default_pg","pg_size":4,"ranks":[0,1,2,3]},
     {"pg_name":"1","pg_desc":"undefined","pg_size":9000,"ranks":[0,"..."]}]},)"));
  ASSERT_EQ(t.groups.size(), 3u);
  EXPECT_EQ(t.groups[0].description, "default_pg");
  EXPECT_EQ(t.groups[0].ranks, (std::vector<int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(t.groups[1].size, 9000);
  EXPECT_TRUE(t.groups[1].ranks.empty());
  EXPECT_EQ(t.groups[2].name, "5");
  EXPECT_EQ(t.groups[2].description, "TENSOR_MODEL_PARALLEL_GROUP");
  EXPECT_EQ(t.groups[2].ranks, (std::vector<int32_t>{2, 3}));
  EXPECT_EQ(t.groups[2].size, 2);
  EXPECT_EQ(t.collectives.at(0).group_size, 2);
  EXPECT_EQ(t.info.at("world_size.known"), "no");
  EXPECT_EQ(t.world_size, 4);
}

TEST(Kineto, SaysWhatWasRecordedAndWhatTheProfilerLost) {
  const RankTimeline t = read_text(R"({"record_shapes": 1, "with_stack": 1, "deviceProperties":
      {"id": 0, "name": "NVIDIA H100", "totalGlobalMem": 85899345920},
      "INFO": ["x", "INFO: Record counts: Out-of-range = 381, Blocklisted runtime = 5, Invalid ext correlations = 2, CUPTI stopped early? = 1"],
      "traceEvents": [{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":1,"dur":1}], "profile_memory": 1})",
                                   "rank4.json");
  EXPECT_EQ(t.info.at("record_shapes"), "1");
  EXPECT_EQ(t.info.at("with_stack"), "1");
  EXPECT_EQ(t.info.at("profile_memory"), "1");
  EXPECT_EQ(t.info.at("device"), "NVIDIA H100");
  EXPECT_EQ(t.info.at("rank.known"), "file name");
  ASSERT_EQ(t.warnings.size(), 2u);
  EXPECT_NE(t.warnings[0].find("left out 381 records"), std::string::npos) << t.warnings[0];
  EXPECT_NE(t.warnings[1].find("stopped early"), std::string::npos) << t.warnings[1];
}

TEST(Kineto, LetsManyKernelsShareOneLaunch) {
  const RankTimeline t = read_text(trace(R"J(
    {"ph":"X","cat":"user_annotation","name":"ProfilerStep#3","pid":9,"tid":9,"ts":0,"dur":9},
    {"ph":"X","cat":"cuda_runtime","name":"cudaGraphLaunch","pid":9,"tid":9,"ts":1,"dur":2,"args":{"correlation":5}},
    {"ph":"X","cat":"kernel","name":"a","pid":0,"tid":7,"ts":20,"dur":1,"args":{"correlation":5,"graph node id":1}},
    {"ph":"X","cat":"kernel","name":"b","pid":0,"tid":7,"ts":22,"dur":1,"args":{"correlation":5,"graph node id":2}})J"));
  EXPECT_EQ(t.spans.correlation, (std::vector<int64_t>{0, 5, 5, 5}));
  EXPECT_EQ(t.spans.step, (std::vector<int32_t>{3, 3, 3, 3}));
}

TEST(Kineto, ReadsTheBareListAndTheNamesOf2021) {
  const RankTimeline t = read_text(R"([
    {"ph":"X","cat":"Operator","name":"aten::mm","pid":1,"tid":1,"ts":1600000000000000,"dur":9},
    {"ph":"X","cat":"Kernel","name":"sgemm","pid":0,"tid":"stream 7","ts":1600000000000004,"dur":9}])");
  EXPECT_EQ(t.spans.kind, (std::vector{SpanKind::kOperation, SpanKind::kKernel}));
  EXPECT_EQ(t.spans.start_ns[0], 1600000000000000000);
  EXPECT_EQ(t.wall_anchor_ns, 0);
  ASSERT_EQ(t.lanes.size(), 2u);
  EXPECT_EQ(t.lanes[0].name, "stream 7");  // streams come first
  EXPECT_EQ(t.lanes[0].tid, 7);
  EXPECT_EQ(t.spans.lane, (std::vector<int32_t>{1, 0}));
}

TEST(Kineto, TakesKeysInAnyOrder) {
  const RankTimeline t = read_text(R"({"traceEvents": [
    {"args":{"Collective name":"allreduce","dtype":"Float","In msg nelems":4,"Group size":2},"dur":2,"ts":1,"tid":7,
     "pid":0,"name":"ncclKernel_AllReduce","cat":"kernel","ph":"X"},
    {"dur":3,"ts":5,"tid":7,"pid":0,"name":"gemm","cat":"kernel","ph":"X"}],
    "baseTimeNanoseconds": 1000, "distributedInfo": {"rank": 3}})");
  ASSERT_EQ(t.spans.size(), 2u);
  EXPECT_EQ(t.spans.kind[0], SpanKind::kReduce);
  EXPECT_EQ(t.collectives.at(0).in_elements, 4);
  EXPECT_EQ(t.spans.kind[1], SpanKind::kKernel);
  EXPECT_EQ(t.rank, 3);
  EXPECT_EQ(t.wall_anchor_ns, 1000);
}

TEST(Kineto, TakesTheRankFromTheFileNameWhenTheTraceDoesNotSay) {
  EXPECT_EQ(read_text(trace(""), "rank-70.Mar_25.pt.trace.json").rank, 70);
  EXPECT_EQ(read_text(trace(""), "rank3.json").rank, 3);
  EXPECT_EQ(read_text(trace(""), "trace.json").rank, 0);
}

TEST(Kineto, KeepsPythonFramesOnlyWhenAsked) {
  const std::string text = trace(
      R"J({"ph":"X","cat":"python_function","name":"train.py(3): step","pid":1,"tid":1,"ts":1,"dur":1})J");
  EXPECT_EQ(read_text(text).spans.size(), 0u);
  EXPECT_EQ(read_text(text, "t.json", {.python_functions = true}).spans.size(), 1u);
}

TEST(Kineto, SortsParentsBeforeTheirChildren) {
  const RankTimeline t = read_text(trace(R"J(
    {"ph":"X","cat":"cpu_op","name":"later","pid":1,"tid":1,"ts":8,"dur":1},
    {"ph":"X","cat":"cpu_op","name":"child","pid":1,"tid":1,"ts":2,"dur":1},
    {"ph":"X","cat":"cpu_op","name":"parent","pid":1,"tid":1,"ts":2,"dur":5})J"));
  EXPECT_EQ(t.strings[t.spans.name[0]], "parent");
  EXPECT_EQ(t.strings[t.spans.name[1]], "child");
  EXPECT_EQ(t.strings[t.spans.name[2]], "later");
}

TEST(Kineto, TakesTheRankFromCollectivesWhenNothingElseSays) {
  const RankTimeline t = read_text(trace(R"J(
    {"ph":"X","cat":"cpu_op","name":"record_param_comms","pid":1,"tid":1,"ts":1,"dur":1,
     "args":{"Collective name":"recv","dtype":"Float","In msg nelems":4,"Out msg nelems":4,"Group size":2,"Rank":0,
             "Src Rank":4,"Process Group Name":"1","Process Group Ranks":"[4, 6]"}},
    {"ph":"X","cat":"cpu_op","name":"record_param_comms","pid":1,"tid":1,"ts":3,"dur":1,
     "args":{"Collective name":"allreduce","dtype":"Float","In msg nelems":4,"Out msg nelems":4,"Group size":2,"Rank":1,
             "Process Group Name":"1","Process Group Ranks":"[4, 6]"}})J"));
  EXPECT_EQ(t.rank, 6);
  EXPECT_EQ(t.info.at("rank.known"), "collectives");
}

}  // namespace
}  // namespace vitrine
