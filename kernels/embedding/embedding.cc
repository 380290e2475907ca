#include "kernels/embedding/embedding.h"

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "kernels/check.h"
#include "kernels/embedding/backends.h"

namespace sluice::kernels {
namespace {

constexpr std::string_view kKernel = "embedding";

// Reading past the table would be silent on the CPU; on CUDA a look at the ids would cost a synchronisation.
absl::Status CheckIds(ConstTensorView ids, int64_t vocabulary) {
  if (!ids.device.is_cpu()) return absl::OkStatus();
  for (int64_t slot = 0; slot < ids.dim(0); ++slot) {
    const int32_t id = ids.as<int32_t>()[slot];
    if (id < 0 || id >= vocabulary) {
      return InvalidArgument(kKernel, "ids",
                             absl::StrCat("slot ", slot, " holds ", id, ", the table has ", vocabulary, " rows"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Forward(const EmbeddingForward& args, Stream stream) {
  RETURN_IF_ERROR(CheckLeadingView(kKernel, "weight", args.weight, 2, stream));
  RETURN_IF_ERROR(CheckLeadingView(kKernel, "y", args.y, 2, stream));
  RETURN_IF_ERROR(
      CheckView(kKernel, "y", args.y, args.weight.dtype, {args.y.dim(0), args.weight.dim(1)}, stream.device));
  RETURN_IF_ERROR(CheckView(kKernel, "ids", args.ids, DType::kInt32, {args.y.dim(0)}, stream.device));
  RETURN_IF_ERROR(CheckIds(args.ids, args.weight.dim(0)));
  return stream.device.is_cpu() ? cpu::Forward(args, stream) : cuda::Forward(args, stream);
}

absl::Status Backward(const EmbeddingBackward& args, Stream stream) {
  RETURN_IF_ERROR(CheckLeadingView(kKernel, "dy", args.dy, 2, stream));
  RETURN_IF_ERROR(CheckLeadingView(kKernel, "dweight", args.dweight, 2, stream));
  RETURN_IF_ERROR(CheckView(kKernel, "dweight", args.dweight, DType::kFloat32, {args.dweight.dim(0), args.dy.dim(1)},
                            stream.device));
  RETURN_IF_ERROR(CheckView(kKernel, "ids", args.ids, DType::kInt32, {args.dy.dim(0)}, stream.device));
  RETURN_IF_ERROR(CheckIds(args.ids, args.dweight.dim(0)));
  return stream.device.is_cpu() ? cpu::Backward(args, stream) : cuda::Backward(args, stream);
}

}  // namespace sluice::kernels
