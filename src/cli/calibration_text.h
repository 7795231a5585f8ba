// What vitrine calibrate says about GPUs.
#pragma once

#include "calibrate/measure_gpus.h"

namespace vitrine {

// To standard output: what was measured, and the constants that the profile has of it.
void print_gpus(const MeasuredGpus& gpus, const MeasuredHost& host);

}  // namespace vitrine
