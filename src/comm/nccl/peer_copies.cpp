// Mapping of peers' memory, and the rounds of words around copies.
#include "comm/nccl/peer_copies.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <thread>

#include "comm/peer_window.h"
#include "core/error.h"
#include "gpu/device_kernels.h"

namespace vitrine {
namespace {

constexpr size_t kWordBytes = 64;                // apart, so that ranks write different lines
constexpr size_t kWordsBytes = size_t{2} << 20;  // a cudaMalloc block of its own
constexpr uint32_t kFarAhead = 1u << 30;         // words are compared as differences of 31 bits
constexpr int kFewestQueues = 16;

struct StreamWords {
  decltype(&cuStreamWriteValue32) write = nullptr;
  decltype(&cuStreamWaitValue32) wait = nullptr;
};

template <typename Function>
void find(const char* name, Function& function) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
  const cudaError_t code =
      cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &result);
  if (code != cudaSuccess) cudaGetLastError();
  function = reinterpret_cast<Function>(found);
}

const StreamWords& stream_words() {
  static const StreamWords words = [] {
    StreamWords w;
    find("cuStreamWriteValue32", w.write);
    find("cuStreamWaitValue32", w.wait);
    return w;
  }();
  return words;
}

void check_words(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return;
  throw DeviceError(std::string(call) + " failed with driver error " + std::to_string(result));
}

// Where this process runs: memory is mapped only between processes of one kernel.
std::array<char, 64> host_identity() {
  std::array<char, 64> text{};
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  file.read(text.data(), text.size() - 1);
  if (file.gcount() == 0) gethostname(text.data(), text.size() - 1);
  return text;
}

bool wanted() {
  const char* choice = std::getenv("VITRINE_PEER_COPIES");
  if (choice != nullptr && std::string(choice) == "0") return false;
  const char* queues = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  return queues != nullptr && std::atoi(queues) >= kFewestQueues;
}

// By a copy engine, also within one GPU, where the driver would take multiprocessors if not asked.
void copy_aside(void* to, const void* from, size_t bytes, cudaStream_t stream) {
  if (bytes == 0 || to == from) return;
#if CUDART_VERSION >= 13000
  cudaMemcpyAttributes attributes{};
  attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
  attributes.flags = cudaMemcpyFlagPreferOverlapWithCompute;
  size_t first = 0;
  const cudaError_t code =
      cudaMemcpyBatchAsync(&to, &from, &bytes, 1, &attributes, &first, 1, stream);
  if (code == cudaSuccess) return;
  if (code != cudaErrorCallRequiresNewerDriver && code != cudaErrorNotSupported)
    VITRINE_GPU_CHECK(code);
  cudaGetLastError();
#endif
  VITRINE_GPU_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream));
}

// What one rank tells of one piece of its memory.
struct Offer {
  cudaIpcMemHandle_t handle{};
  uint64_t offset = 0;  // within the block of the handle
  uint8_t present = 0, failed = 0;
};

Offer offer_of(std::span<const std::byte> memory) {
  Offer offer;
  if (memory.empty()) return offer;
  offer.present = 1;
  static const auto range = [] {
    decltype(&cuMemGetAddressRange) function = nullptr;
    find("cuMemGetAddressRange", function);
    return function;
  }();
  CUdeviceptr base = 0;
  size_t bytes = 0;
  const auto at = reinterpret_cast<CUdeviceptr>(memory.data());
  auto* block = const_cast<std::byte*>(memory.data());
  if (range == nullptr || range(&base, &bytes, at) != CUDA_SUCCESS ||
      cudaIpcGetMemHandle(&offer.handle, block) != cudaSuccess) {
    cudaGetLastError();
    offer.failed = 1;
    return offer;
  }
  offer.offset = at - base;
  return offer;
}

}  // namespace

std::unique_ptr<PeerCopies> PeerCopies::make(std::shared_ptr<Communicator> host,
                                             Patience patience) {
  if (host->size() < 2 || host->size() > kMostRanks) return nullptr;
  std::unique_ptr<PeerCopies> made(new PeerCopies(std::move(host), std::move(patience)));
  const std::array<char, 64> mine = host_identity();
  std::vector<std::array<char, 64>> all(static_cast<size_t>(made->size_));
  made->host_->all_gather(std::as_bytes(std::span(&mine, 1)),
                          std::as_writable_bytes(std::span(all)));
  const bool one_host =
      std::all_of(all.begin(), all.end(), [&](const auto& i) { return i == mine; });
  const StreamWords& words = stream_words();
  const bool possible = one_host && wanted() && words.write != nullptr && words.wait != nullptr;
  if (!made->everyone(possible) || !made->share_progress() || !made->map_words() ||
      !made->words_arrive()) {
    return nullptr;
  }
  return made;
}

PeerCopies::PeerCopies(std::shared_ptr<Communicator> host, Patience patience)
    : host_(std::move(host)),
      patience_(std::move(patience)),
      rank_(host_->rank()),
      size_(host_->size()) {
  aside_ = gpu::Stream::make(true);
  peers_.resize(static_cast<size_t>(size_));
}

PeerCopies::~PeerCopies() {
  if (enqueued_ != nullptr) munmap(enqueued_, sizeof(Enqueued) * static_cast<size_t>(size_));
  if (released_) return;  // copies may still run, the peers' too: what they touch stays
  for (const Mapped& mapped : mapped_) cudaIpcCloseMemHandle(mapped.base);
  cudaFree(words_);
  cudaGetLastError();
}

// The name lives only until everyone has mapped what it stands for.
bool PeerCopies::share_progress() {
  struct Made {
    std::array<char, 64> name{};
    bool mine = false;
    ~Made() {
      if (mine) shm_unlink(name.data());
    }
  } made;
  const size_t bytes = sizeof(Enqueued) * static_cast<size_t>(size_);
  const auto open_it = [&](int flags) {
    const int file = shm_open(made.name.data(), O_RDWR | flags, 0600);
    if (file < 0) return;
    made.mine = flags != 0;
    // Zeros, and room for them, which a small /dev/shm may not have.
    if (flags == 0 || posix_fallocate(file, 0, static_cast<off_t>(bytes)) == 0) {
      void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
      if (at != MAP_FAILED) enqueued_ = static_cast<Enqueued*>(at);
    }
    close(file);
  };
  if (rank_ == 0) {
    std::random_device random;
    std::snprintf(made.name.data(), made.name.size(), "/vitrine-%08x%08x", random(), random());
    open_it(O_CREAT | O_EXCL);
  }
  host_->broadcast(std::as_writable_bytes(std::span(made.name)), 0);
  if (rank_ != 0) open_it(0);
  return everyone(enqueued_ != nullptr);
}

bool PeerCopies::everyone(bool mine) {
  const auto vote = static_cast<std::byte>(mine);
  std::vector<std::byte> all(static_cast<size_t>(size_));
  host_->all_gather({&vote, 1}, all);
  return std::all_of(all.begin(), all.end(), [](std::byte v) { return v != std::byte{0}; });
}

std::byte* PeerCopies::map(int rank, const cudaIpcMemHandle_t& handle) {
  for (const Mapped& mapped : mapped_) {
    if (mapped.rank == rank && std::memcmp(&mapped.handle, &handle, sizeof(handle)) == 0)
      return static_cast<std::byte*>(mapped.base);
  }
  void* base = nullptr;
  if (cudaIpcOpenMemHandle(&base, handle, cudaIpcMemLazyEnablePeerAccess) != cudaSuccess) {
    cudaGetLastError();
    return nullptr;
  }
  mapped_.push_back({base, handle, rank});
  return static_cast<std::byte*>(base);
}

std::vector<std::vector<std::byte*>> PeerCopies::exchange(
    std::span<const std::span<const std::byte>> mine) {
  std::vector<Offer> offers;
  bool good = true;
  for (const std::span<const std::byte> memory : mine) {
    offers.push_back(offer_of(memory));
    good = good && offers.back().failed == 0;
  }
  std::vector<Offer> all(offers.size() * static_cast<size_t>(size_));
  host_->all_gather(std::as_bytes(std::span(offers)), std::as_writable_bytes(std::span(all)));
  std::vector<std::vector<std::byte*>> addresses(static_cast<size_t>(size_));
  for (int r = 0; r < size_; ++r) {
    for (size_t i = 0; i < offers.size(); ++i) {
      const Offer& offer = all[static_cast<size_t>(r) * offers.size() + i];
      std::byte* at = nullptr;
      if (r != rank_ && offer.present != 0 && offer.failed == 0) {
        std::byte* base = map(r, offer.handle);
        good = good && base != nullptr;
        if (base != nullptr) at = base + offer.offset;
      }
      addresses[static_cast<size_t>(r)].push_back(at);
    }
  }
  if (!everyone(good)) addresses.clear();
  return addresses;
}

bool PeerCopies::map_words() {
  const bool made = cudaMalloc(&words_, kWordsBytes) == cudaSuccess &&
                    cudaMemset(words_, 0, kWordsBytes) == cudaSuccess &&
                    cudaDeviceSynchronize() == cudaSuccess;
  cudaGetLastError();
  if (!everyone(made)) return false;
  const std::span<const std::byte> mine(words_, kWordsBytes);
  const auto addresses = exchange({&mine, 1});
  if (addresses.empty()) return false;
  for (size_t r = 0; r < peers_.size(); ++r) peers_[r].words = addresses[r][0];
  return true;
}

// A first round without waits: what the host sees of it decides.
bool PeerCopies::words_arrive() {
  bool good = true;
  try {
    tell_all(kReady, 1, aside_.get());
  } catch (const DeviceError&) {
    good = false;
  }
  good = cudaStreamSynchronize(aside_.get()) == cudaSuccess && good;
  cudaGetLastError();
  host_->barrier();
  for (int r = 0; r < size_ && good; ++r) {
    if (r == rank_) continue;
    uint32_t seen = 0;
    const auto* at = reinterpret_cast<const void*>(word(words_, kReady, r));
    good = cudaMemcpy(&seen, at, sizeof(seen), cudaMemcpyDeviceToHost) == cudaSuccess && seen == 1;
  }
  gathers_ = sums_ = 1;
  return everyone(good);
}

size_t PeerCopies::window_bytes(size_t bytes) {
  return wanted_window_ = peer_window_bytes(bytes, static_cast<size_t>(size_));
}

bool PeerCopies::share(std::span<const std::span<const std::byte>> pieces,
                       std::span<std::byte> window) {
  if (!everyone(window.size() == wanted_window_)) return false;
  std::vector<std::span<const std::byte>> mine(pieces.begin(), pieces.end());
  mine.push_back(window);
  auto addresses = exchange(mine);
  if (addresses.empty()) return false;
  pieces_.clear();
  for (const auto piece : pieces) pieces_.push_back(const_cast<std::byte*>(piece.data()));
  window_ = window.data();
  slot_bytes_ = window.size() / (2 * static_cast<size_t>(size_));
  for (size_t r = 0; r < peers_.size(); ++r) {
    peers_[r].window = addresses[r].back();
    peers_[r].pieces.assign(addresses[r].begin(), addresses[r].end() - 1);
  }
  return true;
}

CUdeviceptr PeerCopies::word(const std::byte* words, Purpose purpose, int rank) const {
  return reinterpret_cast<CUdeviceptr>(words + (purpose * kMostRanks + static_cast<size_t>(rank)) *
                                                   kWordBytes);
}

std::byte* PeerCopies::slot(std::byte* window, uint32_t round, int from) const {
  const size_t index = (round % 2) * static_cast<size_t>(size_) + static_cast<size_t>(from);
  return window + index * slot_bytes_;
}

void PeerCopies::tell(Purpose purpose, int peer, uint32_t round, cudaStream_t stream) {
  const CUdeviceptr at = word(peers_[static_cast<size_t>(peer)].words, purpose, rank_);
  check_words(stream_words().write(stream, at, round, CU_STREAM_WRITE_VALUE_DEFAULT),
              "cuStreamWriteValue32");
}

void PeerCopies::told(Purpose purpose, uint32_t round) {
  enqueued_[rank_].round[purpose].store(round, std::memory_order_release);
}

void PeerCopies::await(Purpose purpose, int peer, uint32_t round, cudaStream_t stream) {
  const std::atomic<uint32_t>& theirs = enqueued_[peer].round[purpose];
  const auto behind = [&] {
    return static_cast<int32_t>(theirs.load(std::memory_order_acquire) - round) < 0;
  };
  constexpr int kSpins = 2000;  // some microseconds, then the core goes to others
  const auto since = std::chrono::steady_clock::now();
  for (int i = 0; behind(); ++i) {
    if (i < kSpins) continue;
    patience_(since);
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  const CUdeviceptr at = word(words_, purpose, peer);
  check_words(stream_words().wait(stream, at, round, CU_STREAM_WAIT_VALUE_GEQ),
              "cuStreamWaitValue32");
}

void PeerCopies::tell_all(Purpose purpose, uint32_t round, cudaStream_t stream) {
  for (int r = 0; r < size_; ++r) {
    if (r != rank_) tell(purpose, r, round, stream);
  }
  told(purpose, round);
}

void PeerCopies::await_all(Purpose purpose, uint32_t round, cudaStream_t stream) {
  for (int r = 0; r < size_; ++r) {
    if (r != rank_) await(purpose, r, round, stream);
  }
}

void PeerCopies::gather(size_t index,
                        std::span<std::byte> out,
                        std::span<const int64_t> out_bytes,
                        cudaStream_t stream) {
  const uint32_t round = ++gathers_;
  tell_all(kReady, round, stream);
  std::vector<std::byte*> to;
  std::byte* at = out.data();
  for (const int64_t bytes : out_bytes) {
    to.push_back(at);
    at += bytes;
  }
  const auto copy = [&](int r, const std::byte* from) {
    const auto i = static_cast<size_t>(r);
    VITRINE_ASSERT(from != nullptr || out_bytes[i] == 0);
    copy_aside(to[i], from, static_cast<size_t>(out_bytes[i]), stream);
  };
  // Each rank begins with its next neighbour, so that no GPU is read by all at once.
  for (int k = 1; k < size_; ++k) {
    const int r = (rank_ + k) % size_;
    await(kReady, r, round, stream);
    copy(r, peers_[static_cast<size_t>(r)].pieces[index]);
    tell(kTaken, r, round, stream);
  }
  told(kTaken, round);
  copy(rank_, pieces_.at(index));
  await_all(kTaken, round, stream);
}

void PeerCopies::reduce_scatter(const void* in,
                                std::span<const int64_t> counts,
                                void* out,
                                DType dtype,
                                TermAdder* adder,
                                cudaStream_t stream) {
  const size_t element = dtype_bytes(dtype);
  const auto slot_elements = static_cast<int64_t>(slot_bytes_ / element);
  VITRINE_ASSERT(slot_elements % TermAdder::kChunk == 0);  // peer_window.h rounds to it
  std::vector<int64_t> begin(1);
  for (const int64_t count : counts) begin.push_back(begin.back() + count);
  const int64_t most = *std::max_element(counts.begin(), counts.end());
  const auto* terms = static_cast<const std::byte*>(in);
  const auto piece_at = [&](int r, int64_t done) {
    return terms + static_cast<size_t>(begin[static_cast<size_t>(r)] + done) * element;
  };
  const auto part = [&](int r, int64_t done) {
    return std::clamp<int64_t>(counts[static_cast<size_t>(r)] - done, 0, slot_elements);
  };
  const uint32_t first = sums_ + 1;
  for (int64_t done = 0; done < most; done += slot_elements) {
    const uint32_t round = ++sums_;
    for (int k = 1; k < size_; ++k) {
      const int r = (rank_ + k) % size_;
      // A slot is written again two rounds on, once what lay there has been summed.
      if (round - first >= 2) await(kSummed, r, round - 2, stream);
      copy_aside(slot(peers_[static_cast<size_t>(r)].window, round, rank_),
                 piece_at(r, done),
                 static_cast<size_t>(part(r, done)) * element,
                 stream);
      tell(kArrived, r, round, stream);
    }
    told(kArrived, round);
    await_all(kArrived, round, stream);
    gpu::Terms mine;
    for (int r = 0; r < size_; ++r) {
      mine.of[mine.count++] = r == rank_ ? piece_at(rank_, done) : slot(window_, round, r);
    }
    void* const sum = static_cast<std::byte*>(out) + static_cast<size_t>(done) * element;
    const int64_t count = part(rank_, done);
    if (adder != nullptr && count > 0) {
      adder->add(sum, {mine.of, static_cast<size_t>(mine.count)}, done, count, dtype);
    } else {
      gpu::sum_arrays(dtype, sum, mine, count);
    }
    tell_all(kSummed, round, stream);
  }
  if (most > 0) await_all(kSummed, sums_, stream);
}

void PeerCopies::release() noexcept {
  released_ = true;
  // Far ahead of every round to come, in the order of 31-bit differences.
  const uint32_t value = std::max(gathers_, sums_) + kFarAhead;
  std::vector<uint32_t> words(kWordBytes / 4 * kMostRanks * kPurposes, value);
  cudaMemcpyAsync(words_, words.data(), words.size() * 4, cudaMemcpyHostToDevice, aside_.get());
  cudaStreamSynchronize(aside_.get());
  cudaGetLastError();
}

}  // namespace vitrine
