// Each rank can compute what every other rank sends, so it knows what must arrive.
#include "comm/collective_checks.h"

#include <cmath>
#include <cstring>
#include <stdexcept>
#include <vector>

namespace vitrine::testing {
namespace {

void check(bool holds, const Communicator& c, const std::string& what) {
  if (holds) return;
  throw std::runtime_error("rank " + std::to_string(c.rank()) + " of " + std::to_string(c.size()) +
                           ": wrong result of " + what);
}

// A number from -8 to 8 with many bits, so that sums in another order have other bits.
double number(Sums sums, int rank, int64_t i) {
  uint64_t x = static_cast<uint64_t>(rank + 1) * 0x9e3779b97f4a7c15u + static_cast<uint64_t>(i);
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  x ^= x >> 31;
  const double value = static_cast<double>(x >> 11) * 0x1p-49 - 8.0;
  return sums == Sums::kAnyOrder ? std::round(value) : value;
}

template <typename T>
T element(double x) {
  if constexpr (std::is_same_v<T, bf16>) return to_bf16(static_cast<float>(x));
  if constexpr (std::is_same_v<T, f16>) return to_f16(static_cast<float>(x));
  if constexpr (std::is_integral_v<T>) return static_cast<T>(static_cast<int64_t>(x * 1000));
  if constexpr (std::is_floating_point_v<T>) return static_cast<T>(x);
}

// Rank-order sum of element i, the definition.
template <typename T>
T summed(Sums sums, int ranks, int64_t i) {
  if constexpr (std::is_same_v<T, bf16> || std::is_same_v<T, f16>) {
    float total = to_float(element<T>(number(sums, 0, i)));
    for (int r = 1; r < ranks; ++r) total += to_float(element<T>(number(sums, r, i)));
    if constexpr (std::is_same_v<T, bf16>) return to_bf16(total);
    if constexpr (std::is_same_v<T, f16>) return to_f16(total);
  } else {
    T total = element<T>(number(sums, 0, i));
    for (int r = 1; r < ranks; ++r) total = static_cast<T>(total + element<T>(number(sums, r, i)));
    return total;
  }
}

template <typename T>
std::vector<T> elements(Sums sums, int rank, int64_t count) {
  std::vector<T> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(element<T>(number(sums, rank, i)));
  return values;
}

template <typename T>
bool equal_bits(Sums sums, const T* got, int64_t begin, int64_t end, int ranks) {
  for (int64_t i = begin; i < end; ++i) {
    const T expected = summed<T>(sums, ranks, i);
    if (std::memcmp(got + (i - begin), &expected, sizeof(T)) != 0) return false;
  }
  return true;
}

template <typename T>
void check_reductions(Communicator& c, Sums sums) {
  const std::string dtype = dtype_name(DTypeOf<T>::value);
  for (const int64_t count : {1, 33, 5000}) {
    std::vector<T> in = elements<T>(sums, c.rank(), count * c.size());
    std::vector<T> out(static_cast<size_t>(count));
    c.reduce_scatter(in.data(), out.data(), count, DTypeOf<T>::value);
    check(equal_bits(sums, out.data(), count * c.rank(), count * (c.rank() + 1), c.size()),
          c,
          "reduce_scatter of " + dtype);
  }
  for (const int64_t count : {0, 1, 2, 12, 60, 4999, 60000}) {
    std::vector<T> data = elements<T>(sums, c.rank(), count);
    c.all_reduce(data.data(), count, DTypeOf<T>::value);
    check(equal_bits(sums, data.data(), 0, count, c.size()), c, "all_reduce of " + dtype);
  }
}

std::vector<std::byte> bytes_of(int from, int to, size_t count) {
  std::vector<std::byte> bytes(count);
  for (size_t i = 0; i < count; ++i) {
    bytes[i] = static_cast<std::byte>((static_cast<size_t>(from * 31 + to * 7) + i * 13) & 255);
  }
  return bytes;
}

void append(std::vector<std::byte>& to, const std::vector<std::byte>& piece) {
  to.insert(to.end(), piece.begin(), piece.end());
}

void check_gather_and_exchange(Communicator& c, size_t piece) {
  const size_t own = static_cast<size_t>(c.rank());
  std::vector<std::byte> gathered, sent, received;
  for (int r = 0; r < c.size(); ++r) {
    append(gathered, bytes_of(r, 0, piece));
    append(sent, bytes_of(c.rank(), r, piece));
    append(received, bytes_of(r, c.rank(), piece));
  }
  const std::vector<std::byte> mine = bytes_of(c.rank(), 0, piece);
  std::vector<std::byte> out(gathered.size());
  c.all_gather(mine, out);
  check(out == gathered, c, "all_gather");
  std::fill(out.begin(), out.end(), std::byte{0});
  std::copy(mine.begin(), mine.end(), out.begin() + static_cast<std::ptrdiff_t>(own * piece));
  c.all_gather(std::span(out).subspan(own * piece, piece), out);
  check(out == gathered, c, "all_gather in place");
  c.all_to_all(sent, out);
  check(out == received, c, "all_to_all");
}

void check_uneven_exchange(Communicator& c) {
  // Rank a sends b (3 a + 5 b) mod 7 times 100 bytes: zero for some pairs, more to some than from
  // them.
  const auto count = [](int a, int b) { return static_cast<int64_t>((3 * a + 5 * b) % 7 * 100); };
  std::vector<int64_t> in_bytes, out_bytes;
  std::vector<std::byte> in, expected;
  for (int r = 0; r < c.size(); ++r) {
    in_bytes.push_back(count(c.rank(), r));
    out_bytes.push_back(count(r, c.rank()));
    append(in, bytes_of(c.rank(), r, static_cast<size_t>(in_bytes.back())));
    append(expected, bytes_of(r, c.rank(), static_cast<size_t>(out_bytes.back())));
  }
  std::vector<std::byte> out(expected.size());
  c.all_to_all_v(in, in_bytes, out, out_bytes);
  check(out == expected, c, "all_to_all_v");
}

// Rank r's piece has r (mod 3) times 1000 + 5 elements, of which the last bytes are odd.
void check_uneven_pieces(Communicator& c, Sums sums) {
  const auto own = static_cast<size_t>(c.rank());
  std::vector<int64_t> counts, bytes;
  int64_t begin = 0, total = 0;
  std::vector<std::byte> gathered;
  for (int r = 0; r < c.size(); ++r) {
    counts.push_back(r % 3 * 1000 + 5 * (r % 2));
    bytes.push_back(counts.back() * 3 + r);
    append(gathered, bytes_of(r, 9, static_cast<size_t>(bytes.back())));
    if (r < c.rank()) begin += counts.back();
    total += counts.back();
  }
  std::vector<std::byte> out(gathered.size());
  c.all_gather_v(bytes_of(c.rank(), 9, static_cast<size_t>(bytes[own])), out, bytes);
  check(out == gathered, c, "all_gather_v");
  std::vector<float> in = elements<float>(sums, c.rank(), total);
  std::vector<float> sum(static_cast<size_t>(counts[own]));
  c.reduce_scatter_v(in.data(), counts, sum.data(), DType::kF32);
  check(equal_bits(sums, sum.data(), begin, begin + counts[own], c.size()), c, "reduce_scatter_v");
}

void check_point_to_point(Communicator& c) {
  if (c.size() == 1) return;
  const int next = (c.rank() + 1) % c.size(), last = (c.rank() + c.size() - 1) % c.size();
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{100000}}) {
    std::vector<std::byte> first(bytes), second(bytes);
    const auto send = [&] {
      c.send(bytes_of(c.rank(), next, bytes), next);
      c.send(bytes_of(c.rank(), next + 100, bytes), next);
    };
    const auto receive = [&] {
      c.receive(first, last);
      c.receive(second, last);
    };
    // Rank 0 breaks the circle of ranks that wait to send.
    if (c.rank() == 0) receive();
    send();
    if (c.rank() != 0) receive();
    check(first == bytes_of(last, c.rank(), bytes), c, "first send");
    check(second == bytes_of(last, c.rank() + 100, bytes), c, "second send");
  }
}

}  // namespace

void check_collectives(Communicator& c, Sums sums) {
  for (const size_t piece : {size_t{0}, size_t{1}, size_t{1000}, size_t{300000}}) {
    check_gather_and_exchange(c, piece);
  }
  check_uneven_exchange(c);
  check_uneven_pieces(c, sums);
  check_point_to_point(c);
  for (int root = 0; root < c.size(); ++root) {
    std::vector<std::byte> data = bytes_of(c.rank(), 5, 777);
    c.broadcast(data, root);
    check(data == bytes_of(root, 5, 777), c, "broadcast");
  }
  check_reductions<float>(c, sums);
  check_reductions<double>(c, sums);
  check_reductions<bf16>(c, sums);
  check_reductions<f16>(c, sums);
  check_reductions<int32_t>(c, sums);
  check_reductions<uint8_t>(c, sums);
  std::vector<int64_t> wide = {c.rank(), int64_t{1} << 60, -c.rank() - 1};
  c.all_reduce_int64(wide);
  const int64_t n = c.size();
  const int64_t wrapped = static_cast<int64_t>(static_cast<uint64_t>(n) << 60);
  check(wide == std::vector<int64_t>({n * (n - 1) / 2, wrapped, -n * (n + 1) / 2}),
        c,
        "all_reduce_int64");
  c.barrier();
}

}  // namespace vitrine::testing
