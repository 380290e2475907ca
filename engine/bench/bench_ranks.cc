#include "engine/bench/bench_ranks.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/process.h"
#include "common/status_macros.h"
#include "common/temporary_folder.h"
#include "common/visible_gpus.h"

namespace sluice::engine {
namespace {

constexpr int64_t kOutputBytes = 1 << 20;

// The GPUs to take, as CUDA_VISIBLE_DEVICES names them.
absl::StatusOr<std::vector<std::string>> VisibleGpus(int count) {
  // That there are so many shows when the ranks open theirs: asking for their number would start CUDA in this process.
  std::vector<std::string> gpus = VisibleGpuIds(std::getenv("CUDA_VISIBLE_DEVICES"), 1024);
  if (static_cast<int>(gpus.size()) < count) {
    return absl::InvalidArgumentError(
        absl::StrCat("--gpus ", count, ": CUDA_VISIBLE_DEVICES lets this process see ", gpus.size()));
  }
  return gpus;
}

}  // namespace

absl::Status RunRanks(const BenchRanks& ranks, int argc, char** argv) {
  ASSIGN_OR_RETURN(const std::vector<std::string> gpus, VisibleGpus(ranks.gpus));
  ASSIGN_OR_RETURN(const TemporaryFolder folder, TemporaryFolder::Create("sluice-bench"));
  const auto log_path = [&](int rank) { return absl::StrCat(folder.path(), "/rank_", rank); };
  std::vector<std::unique_ptr<ChildProcess>> processes;
  for (int rank = 0; rank < ranks.gpus; ++rank) {
    ProcessOptions options;
    options.argv.assign(argv, argv + argc);
    options.argv[0] = "/proc/self/exe";
    for (const std::string& argument : {std::string("--rank"), absl::StrCat(rank), std::string("--rendezvous"),
                                        absl::StrCat("file:", folder.path(), "/rendezvous")}) {
      options.argv.push_back(argument);
    }
    options.environment.emplace_back("CUDA_VISIBLE_DEVICES", gpus[static_cast<size_t>(rank)]);
    options.log_path = log_path(rank);
    ASSIGN_OR_RETURN(processes.emplace_back(), ChildProcess::Start(options));
  }
  size_t running = processes.size();
  while (running > 0) {
    running = 0;
    for (size_t rank = 0; rank < processes.size(); ++rank) {
      const auto exit = processes[rank]->WaitForExit(absl::Milliseconds(100));
      if (!exit.has_value()) {
        ++running;
      } else if (exit->exit_code != 0) {
        return absl::InternalError(absl::StrCat("rank ", rank, ": ", exit->ToString(), ": ",
                                                ReadFileTail(log_path(static_cast<int>(rank)), 2000)));
      }
    }
  }
  std::cout << ReadFileTail(log_path(0), kOutputBytes) << std::flush;
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Communicator>> Connect(const BenchRanks& ranks, kernels::Device device) {
  return Communicator::Create({.rank = std::max(ranks.rank, 0),
                               .world_size = ranks.gpus,
                               .rendezvous = ranks.rendezvous,
                               .device = device,
                               .timeout = absl::Minutes(2)});
}

}  // namespace sluice::engine
