#include "kernels/rope/rope.h"

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "kernels/check.h"
#include "kernels/rope/backends.h"

namespace sluice::kernels {
namespace {

constexpr std::string_view kKernel = "rope";
constexpr std::string_view kTableKernel = "rotary_table";

struct Heads {
  int64_t tokens, q, kv, dim;

  Shape q_shape() const { return {tokens, q, dim}; }
  Shape kv_shape() const { return {tokens, kv, dim}; }
  Shape packed() const { return {tokens, (q + 2 * kv) * dim}; }
};

// The sizes and the type of all arguments come from the queries; only the number of key heads is the keys' own.
absl::Status CheckHeads(std::string_view q_name, ConstTensorView q, std::string_view k_name, ConstTensorView k,
                        std::string_view v_name, ConstTensorView v, Stream stream) {
  RETURN_IF_ERROR(CheckLeadingView(kKernel, q_name, q, 3, stream));
  if (q.dim(2) % 2 != 0) return InvalidArgument(kKernel, q_name, absl::StrCat("its head size ", q.dim(2), " is odd"));
  const Shape shape = {q.dim(0), k.shape.rank() == 3 ? k.dim(1) : 1, q.dim(2)};
  RETURN_IF_ERROR(CheckView(kKernel, k_name, k, q.dtype, shape, stream.device));
  return CheckView(kKernel, v_name, v, q.dtype, shape, stream.device);
}

Heads HeadsOf(ConstTensorView q, ConstTensorView k) { return {q.dim(0), q.dim(1), k.dim(1), q.dim(2)}; }

// The norms' arguments are there together or not at all.
absl::Status CheckNorms(ConstTensorView q_norm, ConstTensorView k_norm, ConstTensorView q_rstd, ConstTensorView k_rstd,
                        const Heads& heads, DType dtype, Stream stream) {
  RETURN_IF_ERROR(CheckView(kKernel, "q_norm", q_norm, dtype, {heads.dim}, stream.device));
  RETURN_IF_ERROR(CheckView(kKernel, "k_norm", k_norm, dtype, {heads.dim}, stream.device));
  RETURN_IF_ERROR(CheckView(kKernel, "q_rstd", q_rstd, DType::kFloat32, {heads.tokens, heads.q}, stream.device));
  return CheckView(kKernel, "k_rstd", k_rstd, DType::kFloat32, {heads.tokens, heads.kv}, stream.device);
}

absl::Status Validate(const RopeForward& args, Stream stream) {
  RETURN_IF_ERROR(CheckHeads("q", args.q, "k", args.k, "v", args.v, stream));
  const Heads heads = HeadsOf(args.q, args.k);
  RETURN_IF_ERROR(CheckView(kKernel, "qkv", args.qkv, args.q.dtype, heads.packed(), stream.device));
  RETURN_IF_ERROR(
      CheckView(kKernel, "cos_sin", args.cos_sin, DType::kFloat32, {heads.tokens, heads.dim}, stream.device));
  if (args.q_norm.empty() && args.k_norm.empty() && args.q_rstd.empty() && args.k_rstd.empty()) {
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(CheckNorms(args.q_norm, args.k_norm, args.q_rstd, args.k_rstd, heads, args.q.dtype, stream));
  if (!(args.eps > 0)) return InvalidArgument(kKernel, "eps", absl::StrCat(args.eps, " is not positive"));
  return absl::OkStatus();
}

absl::Status Validate(const RopeBackward& args, Stream stream) {
  RETURN_IF_ERROR(CheckHeads("dq", args.dq, "dk", args.dk, "dv", args.dv, stream));
  const Heads heads = HeadsOf(args.dq, args.dk);
  RETURN_IF_ERROR(CheckView(kKernel, "dqkv", args.dqkv, args.dq.dtype, heads.packed(), stream.device));
  RETURN_IF_ERROR(
      CheckView(kKernel, "cos_sin", args.cos_sin, DType::kFloat32, {heads.tokens, heads.dim}, stream.device));
  if (args.qkv.empty() && args.q_norm.empty() && args.k_norm.empty() && args.q_rstd.empty() && args.k_rstd.empty() &&
      args.dq_norm.empty() && args.dk_norm.empty()) {
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(CheckNorms(args.q_norm, args.k_norm, args.q_rstd, args.k_rstd, heads, args.dq.dtype, stream));
  RETURN_IF_ERROR(CheckView(kKernel, "qkv", args.qkv, args.dq.dtype, heads.packed(), stream.device));
  RETURN_IF_ERROR(CheckView(kKernel, "dq_norm", args.dq_norm, DType::kFloat32, {heads.dim}, stream.device));
  return CheckView(kKernel, "dk_norm", args.dk_norm, DType::kFloat32, {heads.dim}, stream.device);
}

}  // namespace

absl::Status Run(const RotaryTable& args, Stream stream) {
  RETURN_IF_ERROR(CheckLeadingView(kTableKernel, "cos_sin", args.cos_sin, 2, stream));
  const int64_t tokens = args.cos_sin.dim(0);
  const int64_t head_dim = args.cos_sin.dim(1);
  RETURN_IF_ERROR(CheckView(kTableKernel, "cos_sin", args.cos_sin, DType::kFloat32, {tokens, head_dim}, stream.device));
  if (head_dim % 2 != 0) {
    return InvalidArgument(kTableKernel, "cos_sin", absl::StrCat("its head size ", head_dim, " is odd"));
  }
  RETURN_IF_ERROR(CheckView(kTableKernel, "positions", args.positions, DType::kInt32, {tokens}, stream.device));
  RETURN_IF_ERROR(CheckView(kTableKernel, "inv_freq", args.inv_freq, DType::kFloat32, {head_dim / 2}, stream.device));
  return stream.device.is_cpu() ? cpu::Run(args, stream) : cuda::Run(args, stream);
}

absl::Status Forward(const RopeForward& args, Stream stream) {
  RETURN_IF_ERROR(Validate(args, stream));
  return stream.device.is_cpu() ? cpu::Forward(args, stream) : cuda::Forward(args, stream);
}

absl::Status Backward(const RopeBackward& args, Stream stream) {
  RETURN_IF_ERROR(Validate(args, stream));
  return stream.device.is_cpu() ? cpu::Backward(args, stream) : cuda::Backward(args, stream);
}

}  // namespace sluice::kernels
