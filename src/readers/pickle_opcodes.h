// The operations of Python's pickle machine (Python's Lib/pickletools.py describes each).
#pragma once

#include <cstdint>

namespace vitrine {

namespace pickle_opcode {
constexpr uint8_t kProto = 0x80, kFrame = 0x95, kStop = '.', kMark = '(', kPop = '0',
                  kPopMark = '1', kDup = '2';
constexpr uint8_t kNone = 'N', kNewTrue = 0x88, kNewFalse = 0x89, kBinInt = 'J', kBinInt1 = 'K',
                  kBinInt2 = 'M', kLong1 = 0x8a, kLong4 = 0x8b, kBinFloat = 'G';
constexpr uint8_t kShortBinString = 'U', kBinString = 'T', kShortBinUnicode = 0x8c,
                  kBinUnicode = 'X', kBinUnicode8 = 0x8d, kShortBinBytes = 'C', kBinBytes = 'B',
                  kBinBytes8 = 0x8e, kByteArray8 = 0x96;
constexpr uint8_t kEmptyTuple = ')', kTuple = 't', kTuple1 = 0x85, kTuple2 = 0x86, kTuple3 = 0x87,
                  kEmptyList = ']', kAppend = 'a', kAppends = 'e', kList = 'l', kEmptyDict = '}',
                  kSetItem = 's', kSetItems = 'u', kDict = 'd', kEmptySet = 0x8f, kAddItems = 0x90,
                  kFrozenSet = 0x91;
constexpr uint8_t kBinPut = 'q', kLongBinPut = 'r', kMemoize = 0x94, kBinGet = 'h',
                  kLongBinGet = 'j';
}  // namespace pickle_opcode

// The name of an operation that imports, calls, or asks the reader for an object; null for others.
inline const char* code_running_opcode(uint8_t opcode) {
  switch (opcode) {
    case 'c':
      return "GLOBAL";
    case 'R':
      return "REDUCE";
    case 'b':
      return "BUILD";
    case 'i':
      return "INST";
    case 'o':
      return "OBJ";
    case 0x81:
      return "NEWOBJ";
    case 0x92:
      return "NEWOBJ_EX";
    case 0x93:
      return "STACK_GLOBAL";
    case 0x82:
      return "EXT1";
    case 0x83:
      return "EXT2";
    case 0x84:
      return "EXT4";
    case 'P':
      return "PERSID";
    case 'Q':
      return "BINPERSID";
    case 0x97:
      return "NEXT_BUFFER";
    case 0x98:
      return "READONLY_BUFFER";
    default:
      return nullptr;
  }
}

}  // namespace vitrine
