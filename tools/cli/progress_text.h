// A job's events as text: lines for logs and pipes, a bar for terminals. Pure.
#pragma once

#include <cstddef>
#include <string>

#include "sluice/v1/controller.pb.h"
#include "sluice/v1/types.pb.h"

namespace sluice::cli {

// One line for an event, without a line feed:
//   step 12/25  loss 1.2345  grad_norm 2.31  lr 4.88e-05  tokens/s 210  left 1m20s
std::string EventLine(const v1::WatchJobResponse& update);

// The state of a run in at most `columns` columns. Where it does not all fit, whole fields are left out, the time left
// and the loss last; then the bar grows shorter:
//   [=========>          ] 12/25  loss 1.2345  grad_norm 2.31  lr 4.88e-05  tokens/s 210  TFLOP/s 0.2  left 1m20s
std::string ProgressBar(const v1::Progress& progress, int columns);

// What a terminal of `columns` columns has to be sent to take back a bar of `length` characters, with the cursor behind
// it: a terminal that has grown narrower has broken the bar into several rows. REQUIRES: columns >= 1.
std::string EraseBar(size_t length, int columns);

// What a finished job left, for people: states, losses before and after, where the model is, or why it failed.
std::string Summary(const v1::Job& job);

// The folder of the best checkpoint, and its number. REQUIRES: the job's progress has one.
std::string BestCheckpointText(const v1::Job& job);

}  // namespace sluice::cli
