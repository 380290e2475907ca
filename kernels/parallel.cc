#include "kernels/parallel.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>

namespace sluice::kernels {

int64_t PartCount(int64_t count, int64_t grain) {
  const int64_t by_grain = count / std::max<int64_t>(grain, 1);
  return std::clamp<int64_t>(by_grain, 1, std::max(at::get_num_threads(), 1));
}

void ParallelParts(int64_t count, int64_t grain, absl::FunctionRef<void(int64_t, int64_t, int64_t)> body) {
  if (count <= 0) return;
  const int64_t parts = PartCount(count, grain);
  if (parts == 1) return body(0, 0, count);
  at::parallel_for(0, parts, 1, [&](int64_t first, int64_t last) {
    for (int64_t part = first; part < last; ++part) body(part, count * part / parts, count * (part + 1) / parts);
  });
}

void ParallelFor(int64_t count, int64_t grain, absl::FunctionRef<void(int64_t, int64_t)> body) {
  ParallelParts(count, grain, [&](int64_t, int64_t begin, int64_t end) { body(begin, end); });
}

void ParallelTasks(int64_t tasks, absl::FunctionRef<void(int64_t, int64_t)> body) {
  std::atomic<int64_t> next{0};
  const int64_t workers = PartCount(tasks, 1);
  at::parallel_for(0, workers, 1, [&](int64_t first, int64_t last) {
    for (int64_t worker = first; worker < last; ++worker) {
      for (int64_t task = next++; task < tasks; task = next++) body(worker, task);
    }
  });
}

}  // namespace sluice::kernels
