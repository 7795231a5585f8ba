// The unpickler against pickles that Python wrote, and against damage.
#include "readers/pickle.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "support/temporary_folder.h"
#include "support/text_files.h"

namespace vitrine {
namespace {

const std::string kData = "tests/readers/data/";
using Type = PickleValue::Type;

class KeepAll : public PickleClient {
 public:
  std::optional<PickleRecord> dict(Unpickler&, std::span<const PickleValue>) override {
    return std::nullopt;
  }
};

std::string refusal(const std::string& path) {
  try {
    KeepAll client;
    Unpickler(path, client).load();
  } catch (const IoError& error) {
    return error.what();
  }
  return "loaded";
}

std::string refusal_of(const std::string& bytes) {
  TemporaryFolder folder;
  return refusal(write_file(folder / "p.pickle", bytes));
}

void expect_part(const std::string& message, const std::string& part) {
  EXPECT_NE(message.find(part), std::string::npos) << message;
}

PickleValue value_of(const Unpickler& pickle,
                     const PickleValue& dict,
                     StringPool& strings,
                     const std::string& key) {
  const auto items = pickle.items(dict);
  for (size_t i = 0; i + 1 < items.size(); i += 2) {
    if (strings[items[i].text] == key) return items[i + 1];
  }
  ADD_FAILURE() << "no " << key;
  return {};
}

class PythonValues : public testing::TestWithParam<int> {};

TEST_P(PythonValues, AreReadBack) {
  KeepAll client;
  Unpickler pickle(kData + "values_protocol" + std::to_string(GetParam()) + ".pickle", client);
  const PickleValue root = pickle.load();
  ASSERT_EQ(root.type, Type::kDict);
  const auto value = [&](const std::string& key) {
    return value_of(pickle, root, pickle.strings(), key);
  };
  EXPECT_EQ(value("none").type, Type::kNone);
  const auto integers = pickle.items(value("integers"));
  const std::vector<int64_t> expected = {0,
                                         -1,
                                         255,
                                         65535,
                                         -2147483648LL,
                                         2147483648LL,
                                         INT64_MIN,
                                         INT64_MIN,
                                         -1};  // unsigned ones wrap
  ASSERT_EQ(integers.size(), expected.size() + 2);
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(integers[i].type, Type::kInteger) << i;
    EXPECT_EQ(integers[i].integer, expected[i]) << i;
  }
  EXPECT_EQ(integers[9].type, Type::kLargeInteger);
  EXPECT_EQ(integers[10].type, Type::kLargeInteger);
  EXPECT_EQ(value("float").real, 0.5);
  EXPECT_EQ(pickle.strings()[value("text").text].size(), 600u);
  const auto tuples = pickle.items(value("tuples"));
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(pickle.items(tuples[i]).size(), i);
  const auto numbers = pickle.items(value("long list"));
  ASSERT_EQ(numbers.size(), 2500u);
  EXPECT_EQ(numbers[2499].integer, 2499);
  // One object, twice.
  EXPECT_EQ(value("shared").object, value("truths").object);
  if (GetParam() == 5) {
    EXPECT_EQ(value("bytes").integer, 300);
    EXPECT_EQ(pickle.items(value("set"))[0].integer, 7);
  }
}

INSTANTIATE_TEST_SUITE_P(Protocols, PythonValues, testing::Values(2, 5));

TEST(Pickle, WhatWouldRunCodeIsRefusedByNameAndPlace) {
  expect_part(refusal(kData + "runs_code_protocol2.pickle"), "GLOBAL");
  const std::string modern = refusal(kData + "runs_code_protocol4.pickle");
  expect_part(modern, "STACK_GLOBAL");
  expect_part(modern, "at byte ");
  expect_part(refusal(kData + "ordered_dict.pickle"), "STACK_GLOBAL");
  for (const char opcode : {'c',
                            'R',
                            'b',
                            'i',
                            'o',
                            '\x81',
                            '\x92',
                            '\x93',
                            '\x82',
                            '\x83',
                            '\x84',
                            'P',
                            'Q',
                            '\x97',
                            '\x98'}) {
    expect_part(refusal_of(std::string("\x80\x04N") + opcode + "...."), "would run code");
  }
}

TEST(Pickle, DamageIsNamedWithItsPlace) {
  expect_part(refusal_of(std::string("\x80\x04]", 3)), "cut short");
  expect_part(refusal_of("hello"), "no pickle");
  expect_part(refusal_of(""), "is empty");
  expect_part(refusal_of("\x80\x09."), "protocol 9");
  expect_part(refusal_of("\x80\x04\xff."), "operation 0xff");
  expect_part(refusal_of("\x80\x04."), "STOP with 0 values");
  expect_part(refusal_of("\x80\x04NN."), "STOP with 2 values");
  expect_part(refusal_of("\x80\x04h\x05."), "object 5 of the memo");
  expect_part(refusal_of("\x80\x04Na."), "an item without a container");
  expect_part(refusal_of("\x80\x04NNa."), "holds none");
  expect_part(refusal_of("\x80\x04}(Nu."), "a key without a value");
  expect_part(refusal_of("\x80\x04"
                         "e."),
              "mark is missing");
  expect_part(refusal_of("\x80\x04(0."), "value is missing");
  // Lengths that the file does not hold are not believed.
  expect_part(refusal_of("\x80\x04X\xff\xff\xff\x0fxy"), "cut short");
  expect_part(refusal_of("\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\x7fxy"), "over 256 MiB");
  expect_part(refusal_of("\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x7fxy"), "cut short");
  TemporaryFolder folder;
  expect_part(refusal(folder / "absent"), "cannot read");
  expect_part(refusal(folder.path()), "is a folder");
}

TEST(Pickle, EveryCutOfAFileIsAnErrorAndEveryFlippedByteIsSurvived) {
  TemporaryFolder folder;
  const std::string whole = file_content(kData + "snapshot_protocol4.pickle");
  for (size_t size = 0; size < whole.size(); size += 7) {
    EXPECT_NE(refusal(write_file(folder / "cut", whole.substr(0, size))), "loaded") << size;
  }
  for (size_t i = 2; i < whole.size(); i += 3) {
    std::string damaged = whole;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x55);
    refusal(write_file(folder / "flipped", damaged));
  }
}

TEST(Pickle, AListThatHoldsItselfIsNotFollowed) {
  TemporaryFolder folder;
  KeepAll client;
  // l = []; l.append(l)
  Unpickler pickle(write_file(folder / "p", "\x80\x04]\x94h" + std::string(1, '\0') + "a."),
                   client);
  const PickleValue list = pickle.load();
  EXPECT_EQ(pickle.items(list)[0].object, list.object);
}

}  // namespace
}  // namespace vitrine
