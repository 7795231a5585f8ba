// What a schedule sends, by purpose.
#include "schedule/action.h"

namespace vitrine {

TrafficCount Schedule::traffic() const {
  TrafficCount count;
  for (const Action& action : actions) {
    switch (action.kind) {
      case ActionKind::kGather:
        count.gather_bytes += action.sent_bytes;
        break;
      case ActionKind::kReduce:
        count.reduce_bytes += action.sent_bytes;
        break;
      case ActionKind::kPublish:
        count.publish_bytes += action.sent_bytes;
        break;
      case ActionKind::kSend:
        count.pipeline_bytes += action.sent_bytes;
        break;
      case ActionKind::kNorm:
        count.control_bytes += action.sent_bytes;
        break;
      default:
        break;
    }
  }
  return count;
}

}  // namespace vitrine
