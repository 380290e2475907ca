// What a job will do, in numbers, before it runs: `sluice plan`. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/config/dataflow.h"
#include "common/config/model_facts.h"
#include "common/config/pools.h"
#include "sluice/v1/job.pb.h"

namespace sluice {

// What is known about the training data. Each may be absent: the numbers that need it are then absent too.
struct DataFacts {
  std::optional<int64_t> train_rows;               // in the files, before data.train_max_samples
  std::optional<int64_t> train_tokens;             // of the rows that train, truncated: one epoch
  std::optional<int64_t> micro_batches_per_epoch;  // packed, over all ranks
};

struct Plan {
  struct CurvePoint {
    int64_t step = 0;  // 1-based update
    double learning_rate = 0;
    double weight_decay = 0;
    std::string label;  // "first", "end of warm-up", "1/4", ..., "last"
  };
  struct Memory {
    std::string part;  // "weights"
    int64_t bytes = 0;
    std::string how;  // "134,515,008 x 4 bytes"
  };

  // A model that is trained.
  struct Model {
    std::string architecture;  // "LlamaForSequenceClassification"
    int64_t parameters = 0;    // with those of its head
    int64_t score_head = 0;    // of which the head of one number a token; 0: a language model
  };

  std::string name, recipe, device;
  Model model;
  std::optional<Model> critic;
  int64_t nodes = 0, ranks_per_node = 0, ranks = 0;
  std::string rows_are;                          // "rows", "prompts", "pairs", "labelled answers"
  int64_t rows_per_step = 0, rows_per_rank = 0;  // of a full step
  int64_t token_slots = 0;                       // of one micro-batch on one rank
  // Micro-batches of one rank in a full step: expected from the tokens, else the most that the longest rows could need.
  std::optional<double> expected_micro_batches;
  int64_t most_micro_batches = 0;
  std::optional<double> tokens_per_step;  // all ranks, mean
  std::optional<int64_t> train_rows, steps_per_epoch, total_steps;
  std::string validation, checkpoints;                 // when: "every 10 steps and at the end"; empty: never
  std::vector<CurvePoint> curve;                       // empty where total_steps is unknown
  std::string memory_device;                           // "cpu" or "cuda": what memory is the memory of (memory_plan.h)
  std::vector<Memory> memory;                          // per rank, from the engine's buffers
  std::vector<DataflowStage> dataflow;                 // of a step; empty where a step is one update on given texts
  std::vector<Pool> pools;                             // with a data flow; one where the job names none
  std::string mode;                                    // rollout.mode, with several pools
  int64_t answers_per_step = 0, updates_per_step = 0;  // with a data flow
  std::vector<std::string> notes;                      // how values are understood, and which ones do nothing here
};

// REQUIRES: `spec` is valid (ValidateJobSpec, with these rows); `models` are those of it (ReadJobModels).
// InvalidArgument: the schedule does not fit the run.
absl::StatusOr<Plan> MakePlan(const v1::JobSpec& spec, const JobModels& models, const DataFacts& data);

// Of a job whose only folder is model.path: a critic is the same model with a value head.
absl::StatusOr<Plan> MakePlan(const v1::JobSpec& spec, const ModelFacts& model, const DataFacts& data);

int64_t TotalMemoryBytes(const Plan& plan);

std::string FormatPlan(const Plan& plan);  // a table for people
std::string PlanJson(const Plan& plan);    // one JSON object, indented; unknown numbers are null

}  // namespace sluice
