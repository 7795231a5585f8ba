// NVIDIA: the spelling that all GPU code uses.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

// Lanes of a warp, and a mask of all of them.
#define VITRINE_WARP 32
#define VITRINE_FULL_MASK 0xffffffffu
// The constraint of a vector register in inline machine code.
#define VITRINE_REGISTER "r"
