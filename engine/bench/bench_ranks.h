// A measurement over several GPUs of one host: this program once for each of them.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/comm/communicator.h"

namespace sluice::engine {

// What the command line says of it.
struct BenchRanks {
  int gpus = 1;            // one process each
  int rank = -1;           // of this process; -1: it is the one that starts the others
  std::string rendezvous;  // a file where they meet
};

// Whether this process only starts the others: RunRanks is all it has to do.
inline bool StartsRanks(const BenchRanks& ranks) { return ranks.gpus > 1 && ranks.rank < 0; }

// Runs the command line again for each rank, on a GPU of its own, and prints to standard output what rank 0 printed.
// The error of the first rank that failed, with the end of what it printed; the others are then killed.
absl::Status RunRanks(const BenchRanks& ranks, int argc, char** argv);

// Between the ranks; of one rank where gpus is 1.
absl::StatusOr<std::unique_ptr<Communicator>> Connect(const BenchRanks& ranks, kernels::Device device);

}  // namespace sluice::engine
