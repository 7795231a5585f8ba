// Reductions built from exchanges of pieces, the same for every transport.
#include "comm/communicator.h"

#include <algorithm>
#include <cstring>

#include "comm/rank_sum.h"
#include "core/error.h"
#include "core/format.h"

namespace vitrine {

std::string Communicator::describe(const std::string& collective) const {
  std::string where;
  if (!what_.empty()) where += what_ + ", ";
  if (step_ >= 0) where += "step " + std::to_string(step_) + ", ";
  return collective + " (" + where + "group '" + name() + "')";
}

std::byte* Communicator::scratch(size_t bytes, Buffer& own) const {
  if (lent_.size() >= bytes) return lent_.data();
  static MemoryLedger nobody;
  own = Buffer(nobody, MemoryCategory::kCommunication, "received pieces", bytes);
  return static_cast<std::byte*>(own.data());
}

size_t Communicator::reduce_scratch(std::span<const int64_t> counts, DType dtype) const {
  return static_cast<size_t>(reduce_scratch_bytes(counts, rank(), dtype));
}

void Communicator::gather_shared(size_t /*index*/,
                                 std::span<std::byte> /*out*/,
                                 std::span<const int64_t> /*out_bytes*/) {
  throw ConfigError(describe("gather_shared") + ": nothing was shared");
}

int64_t reduce_scratch_bytes(std::span<const int64_t> counts, int own, DType dtype) {
  const auto ranks = static_cast<int64_t>(counts.size());
  const int64_t piece = counts[static_cast<size_t>(own)] * static_cast<int64_t>(dtype_bytes(dtype));
  const bool equal = std::equal(counts.begin() + 1, counts.end(), counts.begin());
  return (equal ? ranks - 1 : ranks) * piece;  // unequal pieces go by all_to_all_v, the own one too
}

void Communicator::add_terms(std::span<const void* const> terms,
                             void* out,
                             int64_t count,
                             DType dtype) const {
  if (adder_ == nullptr) {
    rank_order_sum(terms, out, count, dtype);
  } else if (count > 0) {
    adder_->add(out, terms, 0, count, dtype);
  }
}

void Communicator::reduce_scatter(void* in, void* out, int64_t count, DType dtype) {
  const size_t ranks = static_cast<size_t>(size());
  const size_t own = static_cast<size_t>(rank());
  const size_t bytes = static_cast<size_t>(count) * dtype_bytes(dtype);
  std::byte* from = static_cast<std::byte*>(in);
  Buffer kept;
  std::byte* pieces_begin = scratch((ranks - 1) * bytes, kept);
  if (ranks > 1) exchange({from, ranks * bytes}, {pieces_begin, (ranks - 1) * bytes});
  std::vector<const void*> pieces(ranks);
  for (size_t r = 0; r < ranks; ++r) {
    pieces[r] = r == own ? from + own * bytes : pieces_begin + (r < own ? r : r - 1) * bytes;
  }
  add_terms(pieces, out, count, dtype);
}

void Communicator::all_gather_v(std::span<const std::byte> in,
                                std::span<std::byte> out,
                                std::span<const int64_t> out_bytes) {
  if (std::equal(out_bytes.begin() + 1, out_bytes.end(), out_bytes.begin())) {
    all_gather(in, out);
    return;
  }
  size_t at = 0;
  for (int r = 0; r < size(); ++r) {
    const std::span<std::byte> piece =
        out.subspan(at, static_cast<size_t>(out_bytes[static_cast<size_t>(r)]));
    if (piece.empty()) continue;
    if (r == rank() && piece.data() != in.data())
      std::memcpy(piece.data(), in.data(), piece.size());
    broadcast(piece, r);
    at += piece.size();
  }
}

void Communicator::reduce_scatter_v(void* in,
                                    std::span<const int64_t> counts,
                                    void* out,
                                    DType dtype) {
  const size_t ranks = counts.size(), own = static_cast<size_t>(rank());
  if (std::equal(counts.begin() + 1, counts.end(), counts.begin())) {
    reduce_scatter(in, out, counts[0], dtype);
    return;
  }
  const auto element = static_cast<int64_t>(dtype_bytes(dtype));
  std::vector<int64_t> in_bytes;
  int64_t total = 0;
  for (const int64_t count : counts) {
    in_bytes.push_back(count * element);
    total += in_bytes.back();
  }
  const std::vector<int64_t> out_bytes(ranks, in_bytes[own]);
  const auto piece = static_cast<size_t>(in_bytes[own]);
  Buffer kept;
  std::byte* begin = scratch(ranks * piece, kept);
  all_to_all_v({static_cast<const std::byte*>(in), static_cast<size_t>(total)},
               in_bytes,
               {begin, ranks * piece},
               out_bytes);
  std::vector<const void*> pieces(ranks);
  for (size_t r = 0; r < ranks; ++r) pieces[r] = begin + r * piece;
  add_terms(pieces, out, counts[own], dtype);
}

void Communicator::all_reduce(void* data, int64_t count, DType dtype) {
  if (size() == 1 || count == 0) return;
  const int64_t piece = (count + size() - 1) / size();
  const size_t piece_bytes = static_cast<size_t>(piece) * dtype_bytes(dtype);
  const size_t bytes = static_cast<size_t>(count) * dtype_bytes(dtype);
  const size_t padded_bytes = piece_bytes * static_cast<size_t>(size());
  std::byte* work = static_cast<std::byte*>(data);
  std::vector<std::byte> padded;
  if (padded_bytes != bytes) {
    padded.resize(padded_bytes);
    work = padded.data();
    std::memcpy(work, data, bytes);
    std::memset(work + bytes, 0, padded_bytes - bytes);
  }
  std::byte* own = work + piece_bytes * static_cast<size_t>(rank());
  reduce_scatter(work, own, piece, dtype);
  all_gather({own, piece_bytes}, {work, padded_bytes});
  if (work != data) std::memcpy(data, work, bytes);
}

void Communicator::all_reduce_int64(std::span<int64_t> data) {
  if (size() == 1 || data.empty()) return;
  const size_t n = data.size();
  std::vector<int64_t> all(n * static_cast<size_t>(size()));
  all_gather(std::as_bytes(data), std::as_writable_bytes(std::span(all)));
  for (size_t i = 0; i < n; ++i) {
    uint64_t total = 0;  // unsigned, so that overflow wraps as it does in limb arithmetic
    for (size_t r = 0; r < all.size(); r += n) total += static_cast<uint64_t>(all[r + i]);
    data[i] = static_cast<int64_t>(total);
  }
}

}  // namespace vitrine
