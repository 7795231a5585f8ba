// Settings of published measurements that stand in no column but in the files that the runs were
// started from.
#pragma once

#include <string>

#include "plan/measurements.h"

namespace vitrine {

// Megatron-Bridge's performance presets (scripts/performance/configs at v0.1.0 to v0.5.1: releases
// 25.09 to 26.08), by release, model, card and precision: dispatcher of tokens, CUDA graphs,
// overlap of the exchange. Changes nothing for a source without a release in its name ("[26.06
// ...").
void apply_bridge_preset(Measurement& m, const std::string& precision);

// Megatron's model zoo, the commands beside its GB200 table.
void apply_zoo_command(Measurement& m);

}  // namespace vitrine
