// How CPU kernels share their work between threads: LibTorch's pool, in fixed parts.
//
// The parts depend on the sizes and the number of threads (at::get_num_threads) only, so a sum taken per part is
// bit-equal from run to run. Called inside another of these calls, they run their parts one after the other on the
// calling thread. Bodies must not throw.
#pragma once

#include <cstdint>

#include "absl/functional/function_ref.h"

namespace sluice::kernels {

// body(begin, end) over a partition of 0..count-1; a part has at least `grain` items unless it is the only one.
void ParallelFor(int64_t count, int64_t grain, absl::FunctionRef<void(int64_t, int64_t)> body);

// The number of parts that ParallelParts makes: for the size of per-part scratch. At least 1.
int64_t PartCount(int64_t count, int64_t grain);

// body(part, begin, end), 0 <= part < PartCount(count, grain).
void ParallelParts(int64_t count, int64_t grain, absl::FunctionRef<void(int64_t, int64_t, int64_t)> body);

// body(worker, task) for every task 0..tasks-1, taken in that order by whichever worker is free: for tasks of unequal
// cost with disjoint outputs. 0 <= worker < PartCount(tasks, 1), and a worker runs one task at a time.
void ParallelTasks(int64_t tasks, absl::FunctionRef<void(int64_t, int64_t)> body);

// Items for a ParallelFor part of about 16k elements: below that, waking a thread costs more than it brings.
constexpr int64_t GrainOf(int64_t elements_per_item) {
  return elements_per_item >= 16384 ? 1 : 16384 / (elements_per_item < 1 ? 1 : elements_per_item);
}

}  // namespace sluice::kernels
