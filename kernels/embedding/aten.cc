#include <ATen/ops/index_select.h>

#include "kernels/aten_boundary.h"
#include "kernels/aten_view.h"
#include "kernels/embedding/backends.h"

namespace sluice::kernels::aten {

absl::Status Forward(const EmbeddingForward& args, Stream stream) {
  return CallAten("embedding", stream, [&] {
    at::Tensor y = AsTensor(args.y);
    at::index_select_out(y, AsTensor(args.weight), 0, AsTensor(args.ids));
  });
}

// index_put_ with accumulation sorts the ids first, so that its order is fixed (index_add_ uses atomics).
absl::Status Backward(const EmbeddingBackward& args, Stream stream) {
  return CallAten("embedding", stream, [&] {
    const c10::List<std::optional<at::Tensor>> index({AsTensor(args.ids).to(at::kLong)});
    AsTensor(args.dweight).index_put_(index, AsTensor(args.dy).to(at::kFloat), /*accumulate=*/true);
  });
}

}  // namespace sluice::kernels::aten
