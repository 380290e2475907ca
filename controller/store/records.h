// What the store keeps and what callers give it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "sluice/v1/types.pb.h"

namespace sluice::controller {

// Who asked, and the id that he chose. Ids of two users never meet.
struct RequestId {
  std::string user;  // empty: the one user of a controller without accounts
  std::string id;    // empty: not repeatable, every call is a new one
};

struct AddedJob {
  v1::Job job;
  bool created = false;  // false: this request id made the job before
};

// One rank's place.
struct Placement {
  int32_t rank = 0;
  std::string worker_id;
  std::string incarnation;
  std::string address;
};

// One attempt at a job.
struct AttemptRecord {
  std::string job_id;
  int32_t attempt = 0;
  int64_t epoch = 0;
  std::vector<Placement> placements;  // by rank
};

// What a change of state says beside the states.
struct Change {
  absl::Time time;
  std::string message;                 // one sentence for people
  std::optional<v1::Failure> failure;  // stored with the job; absent: the job keeps what it has
  std::optional<std::string> output_path;
  bool counts_as_restart = false;  // this loss uses up one of trainer.max_restarts
};

// Something that happened inside a state.
struct Happening {
  absl::Time time;
  std::string message;
  std::optional<v1::StepMetrics> step;
  std::optional<v1::ValidationMetrics> validation;
  std::optional<int64_t> checkpoint_step;
  bool warning = false;  // the message is one
  std::vector<v1::StageSpan> spans;
};

struct JobFilter {
  std::vector<v1::JobState> states;  // empty: all
  std::string name_contains;         // empty: all
};

struct JobPage {
  std::vector<v1::Job> jobs;  // newest first
  std::string next_page_token;
  int64_t total_size = 0;
};

}  // namespace sluice::controller
