// Token shards: each layout read from bytes laid by hand, windows, masks, and damage named.
#include "data/tokens.h"

#include <array>
#include <cstring>

#include "core/error.h"
#include "data/scratch.h"

namespace vitrine {
namespace {

template <typename T>
std::string raw(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

std::string header(std::vector<int32_t> first) {
  first.resize(256);
  return raw(first);
}

const int32_t kBin = 0x2e4e4942, kTok = 0x0a4b4f54;  // "BIN." "TOK\n", little-endian

std::vector<uint32_t> tokens_of(const std::string& path) {
  const TokenShard shard(path);
  std::vector<uint32_t> tokens;
  for (int64_t i = 0; i < shard.size(); ++i) tokens.push_back(shard.token(i));
  return tokens;
}

TEST(Tokens, ReadsLlmcForGpt2) {
  ScratchFolder folder;
  write_text_file(folder / "a.bin", header({20240520, 1, 3}) + raw<uint16_t>({50256, 7, 65535}));
  EXPECT_EQ(tokens_of(folder / "a.bin"), (std::vector<uint32_t>{50256, 7, 65535}));
  EXPECT_EQ(TokenShard(folder / "a.bin").vocabulary(), 0);
}

TEST(Tokens, ReadsLlmcForLlama3) {
  ScratchFolder folder;
  write_text_file(folder / "a.bin", header({20240801, 7, 2}) + raw<uint32_t>({128000, 5}));
  EXPECT_EQ(tokens_of(folder / "a.bin"), (std::vector<uint32_t>{128000, 5}));
}

TEST(Tokens, ReadsBinTokOfBothVersionsAndItsMask) {
  ScratchFolder folder;
  const std::vector<int32_t> tokens = {9, 8, 7, 6, 5, 4, 3, 2, 1, 0};
  write_text_file(folder / "v1.bin", header({kBin, kTok, 1, 4, 10}) + raw(tokens));
  EXPECT_EQ(tokens_of(folder / "v1.bin")[3], 6u);
  EXPECT_FALSE(TokenShard(folder / "v1.bin").has_mask());
  // Bits of the mask go from the lowest up: tokens 1, 2 and 9 are learned.
  write_text_file(folder / "v2.bin",
                  header({kBin, kTok, 2, 4, 10, 11, 1}) + raw(tokens) + std::string("\x06\x02", 2));
  const TokenShard shard(folder / "v2.bin");
  EXPECT_EQ(shard.vocabulary(), 11);
  std::string learned;
  for (int64_t i = 0; i < 10; ++i) learned += shard.learned(i) ? '1' : '0';
  EXPECT_EQ(learned, "0110000001");
  const auto shards = std::make_shared<TokenShards>(TokenShards::open(folder / "v2.bin"));
  const TokenWindows windows(shards, 3, 11);
  EXPECT_EQ(windows.size(), 3);
  std::array<int32_t, 3> in{}, out{};
  windows.read(0, in.data(), out.data());
  EXPECT_EQ(in, (std::array<int32_t, 3>{9, 8, 7}));
  EXPECT_EQ(out, (std::array<int32_t, 3>{8, 7, kIgnoredTarget}));
}

TEST(Tokens, WritesWhatItReads) {
  ScratchFolder folder;
  write_token_shard(folder / "a.bin", {5, 0, 256}, kByteVocabulary);
  EXPECT_EQ(read_text_file(folder / "a.bin"),
            header({kBin, kTok, 2, 4, 3, 257, 0}) + raw<int32_t>({5, 0, 256}));
  const auto write = [&](std::vector<int32_t> tokens) {
    return message_of<ConfigError>([&] { write_token_shard(folder / "b.bin", tokens, 4); });
  };
  EXPECT_CONTAINS(write({}), "no tokens");
  EXPECT_CONTAINS(write({1, 4}), "token 4 at position 1");
  EXPECT_CONTAINS(write({-1}), "token -1");
}

TEST(Tokens, WindowsNeverCrossShards) {
  ScratchFolder folder;
  write_token_shard(folder / "b.bin", {10, 11, 12, 13, 14, 15}, 20);
  write_token_shard(folder / "a.bin", {0, 1, 2, 3, 4, 5, 6, 7}, 20);
  write_token_shard(folder / "c.bin", {16}, 20);
  write_text_file(folder / "notes.txt", "not a shard");
  for (const std::string& source : {folder.path(), folder / "*.bin"}) {
    const auto shards = std::make_shared<TokenShards>(TokenShards::open(source));
    EXPECT_EQ(shards->tokens(), 15);
    const TokenWindows windows(shards, 3, 20);
    ASSERT_EQ(windows.size(), 3);  // 0..3, 3..6 and 10..13
    std::array<int32_t, 3> in{}, out{};
    windows.read(1, in.data(), out.data());
    EXPECT_EQ(in, (std::array<int32_t, 3>{3, 4, 5}));
    EXPECT_EQ(out, (std::array<int32_t, 3>{4, 5, 6}));
    windows.read(2, in.data(), out.data());
    EXPECT_EQ(in, (std::array<int32_t, 3>{10, 11, 12}));
  }
}

TEST(Tokens, NamesTheIdThatIsBeyondTheVocabulary) {
  ScratchFolder folder;
  write_text_file(folder / "a.bin", header({20240520, 1, 5}) + raw<uint16_t>({1, 2, 3, 400, 5}));
  const auto shards = std::make_shared<TokenShards>(TokenShards::open(folder / "a.bin"));
  const TokenWindows windows(shards, 2, 300);
  std::array<int32_t, 2> in{}, out{};
  windows.read(0, in.data(), out.data());
  const std::string message =
      message_of<ConfigError>([&] { windows.read(1, in.data(), out.data()); });
  EXPECT_CONTAINS(message, "a.bin");
  EXPECT_CONTAINS(message, "token 400 at position 3");
  EXPECT_CONTAINS(message, "vocabulary of 300");
}

TEST(Tokens, RefusesBadFiles) {
  ScratchFolder folder;
  const auto io = [&](const std::string& bytes) {
    write_text_file(folder / "a.bin", bytes);
    return message_of<IoError>([&] { TokenShard(folder / "a.bin"); });
  };
  const std::string body = raw<int32_t>({1, 2, 3});
  EXPECT_CONTAINS(io(""), "empty");
  EXPECT_CONTAINS(io("short"), "begins with a header of 1024");
  EXPECT_CONTAINS(io(header({77, 1, 3}) + body), "not a token file (first number 77)");
  EXPECT_CONTAINS(io(header({20240520, 2, 3}) + body), "magic 20240520 with version 2");
  EXPECT_CONTAINS(io(header({kBin, kTok, 3, 4, 3}) + body), "BIN.TOK version 3");
  EXPECT_CONTAINS(io(header({kBin, kTok, 2, 2, 3, 9}) + body), "2 bytes a token");
  EXPECT_CONTAINS(io(header({kBin, kTok, 1, 4, 4}) + body), "truncated");
  EXPECT_CONTAINS(io(header({kBin, kTok, 1, 4, 2}) + body), "something follows");
  EXPECT_CONTAINS(io(header({kBin, kTok, 1, 4, -1}) + body), "counts -1 tokens");
  EXPECT_CONTAINS(io(header({kBin, kTok, 2, 4, 3, 9, 1}) + body), "truncated");
  write_text_file(folder / "a.bin", header({kBin, kTok, 1, 4, 0}));
  EXPECT_CONTAINS(message_of<ConfigError>([&] { TokenShard(folder / "a.bin"); }), "no tokens");
}

TEST(Tokens, RefusesSourcesThatDoNotFit) {
  ScratchFolder folder;
  const auto open = [&] { TokenShards::open(folder.path()); };
  EXPECT_CONTAINS(message_of<IoError>(open), "no *.bin");
  EXPECT_CONTAINS(message_of<IoError>([&] { TokenShards::open(folder / "x*.bin"); }), "x*.bin");
  write_token_shard(folder / "a.bin", {1, 2, 3}, 10);
  const auto shards = std::make_shared<TokenShards>(TokenShards::open(folder / "a.bin"));
  EXPECT_CONTAINS(message_of<ConfigError>([&] { TokenWindows(shards, 3, 10); }),
                  "the largest has 3");
  EXPECT_CONTAINS(message_of<ConfigError>([&] { TokenWindows(shards, 2, 9); }),
                  "the model has only 9");
  write_token_shard(folder / "b.bin", {1, 2, 3}, 11);
  EXPECT_CONTAINS(message_of<ConfigError>(open), "a vocabulary of 11");
}

TEST(Tokens, TextBecomesShardsThatGiveTheTextBack) {
  ScratchFolder folder;
  std::filesystem::create_directory(folder / "text");
  const std::string one = "Grüße, 世界!\n", two(100, 'x');
  write_text_file(folder / "text/1.txt", one);
  write_text_file(folder / "text/2.txt", two);
  write_text_file(folder / "text/3.txt", "");
  TokensOptions options;
  options.inputs = {folder / "text"};
  options.output = folder / "out";
  options.held_out = 0.25;
  options.shard_tokens = 50;
  const TokensSummary summary = write_tokens(options);
  EXPECT_EQ(summary.documents, 2);
  EXPECT_EQ(summary.train_tokens + summary.held_out_tokens,
            static_cast<int64_t>(one.size() + two.size() + 2));
  EXPECT_EQ(summary.held_out_tokens, 18 / 4 + 25);
  std::string train, held_out;
  for (const auto& [pattern, text] :
       {std::pair{"out/train-*", &train}, {"out/held-out-*", &held_out}}) {
    const TokenShards shards = TokenShards::open(folder / pattern);
    std::vector<int32_t> tokens;
    for (const TokenShard& shard : shards.shards()) {
      EXPECT_LE(shard.size(), 50);
      for (int64_t i = 0; i < shard.size(); ++i)
        tokens.push_back(static_cast<int32_t>(shard.token(i)));
    }
    *text = text_of_tokens(tokens);
  }
  EXPECT_EQ(train.substr(0, 14), one.substr(0, 14));
  EXPECT_EQ(train.size() + held_out.size(), one.size() + two.size());
  EXPECT_CONTAINS(message_of<ConfigError>([&] { write_tokens(options); }), "exists already");
}

TEST(Tokens, NoTextIsAnError) {
  ScratchFolder folder;
  write_text_file(folder / "empty.txt", "");
  TokensOptions options;
  options.output = folder / "out";
  options.inputs = {folder / "empty.txt"};
  EXPECT_CONTAINS(message_of<ConfigError>([&] { write_tokens(options); }), "no text to tokenize");
  EXPECT_FALSE(std::filesystem::exists(folder / "out"));
  options.inputs = {folder / "none.txt"};
  EXPECT_CONTAINS(message_of<IoError>([&] { write_tokens(options); }), "none.txt");
  EXPECT_CONTAINS(message_of<ConfigError>([] { text_of_tokens({72, 300}); }), "300 at position 1");
}

}  // namespace
}  // namespace vitrine
