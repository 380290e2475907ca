// Rows to steps. The engine, the plan and validation all count with these.
#pragma once

#include <cstdint>

#include "sluice/v1/job.pb.h"

namespace sluice {

// Optimizer steps of one pass over `rows` rows, `batch` per step. What is left at the end of an epoch is a step of its
// own, with fewer rows, never dropped: the loss is divided by the tokens of the step, so a short step weighs its tokens
// like any other, and a rank that gets no row of it takes part with weight zero. REQUIRES: rows >= 0, batch >= 1.
inline int64_t StepsPerEpoch(int64_t rows, int64_t batch) { return rows / batch + (rows % batch != 0); }

// Rows that train: those of the files, at most data.train_max_samples.
inline int64_t TrainRows(const v1::DataSpec& data, int64_t rows_in_files) {
  const int64_t most = data.train_max_samples();
  return most >= 0 && most < rows_in_files ? most : rows_in_files;
}

// Optimizer steps of the run: trainer.total_training_steps where it is given, else total_epochs passes. 0: nothing to
// do.
inline int64_t TotalSteps(const v1::TrainerSpec& trainer, int64_t steps_per_epoch) {
  return trainer.has_total_training_steps() ? trainer.total_training_steps() : trainer.total_epochs() * steps_per_epoch;
}

}  // namespace sluice
