// CUPTI's functions, loaded at run time.
#pragma once

#include <cupti.h>

#include <string>

namespace vitrine::gpu {

struct Cupti {
  decltype(&cuptiGetVersion) get_version;
  decltype(&cuptiGetResultString) result_string;
  decltype(&cuptiGetCallbackName) callback_name;
  decltype(&cuptiActivityRegisterTimestampCallback) register_timestamp;
  decltype(&cuptiActivityRegisterCallbacks) register_buffers;
  decltype(&cuptiActivityEnable) enable;
  decltype(&cuptiActivityDisable) disable;
  decltype(&cuptiActivityFlushAll) flush_all;
  decltype(&cuptiActivityGetNextRecord) next_record;
  decltype(&cuptiActivityGetNumDroppedRecords) dropped_records;
  decltype(&cuptiActivityPushExternalCorrelationId) push_external;
  decltype(&cuptiActivityPopExternalCorrelationId) pop_external;
};

// Loaded once a process and kept. Null, with `why`, when it is not there or its records are of
// another major version than this build reads.
const Cupti* load_cupti(std::string& why);

}  // namespace vitrine::gpu
