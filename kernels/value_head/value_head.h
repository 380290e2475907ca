// The head of a critic: one number for each token instead of one for each word.
//
//   value[t] = sum over i of hidden[t, i] weight[0, i]
// Backward: dhidden[t, i] = d_value[t] weight[0, i],  dweight[0, i] += sum over t of d_value[t] hidden[t, i]
//
// Products and sums are in fp32 whatever the storage type; dhidden is rounded once. `weight` is `score.weight` of
// `transformers`' models for sequence classification with one label.
#pragma once

#include "absl/status/status.h"
#include "kernels/stream.h"
#include "kernels/tensor_view.h"

namespace sluice::kernels {

// T = tokens, H = hidden size. All dense.
struct ValueHeadForward {
  ConstTensorView hidden;  // [T, H] bf16 or fp32
  ConstTensorView weight;  // [1, H] as hidden
  TensorView value;        // [T] fp32
};

struct ValueHeadBackward {
  ConstTensorView hidden;   // [T, H] bf16 or fp32
  ConstTensorView weight;   // [1, H] as hidden
  ConstTensorView d_value;  // [T] fp32
  TensorView dhidden;       // [T, H] as hidden: overwritten. May alias hidden.
  TensorView dweight;       // [1, H] fp32: accumulated into, or overwritten
  bool accumulate_dweight = true;
};

// Deterministic: tokens are added in their order on the CPU, for any number of threads; on CUDA as cuBLAS repeats.
// On CUDA both allocate in LibTorch: they cannot be recorded in a graph.
//
// Return InvalidArgument, naming the argument, for mismatched shapes, types or devices.
absl::Status Forward(const ValueHeadForward& args, Stream stream);
absl::Status Backward(const ValueHeadBackward& args, Stream stream);

}  // namespace sluice::kernels
