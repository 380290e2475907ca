// The controller's memory: jobs, attempts and events. Everything the controller acknowledges is here first.
//
// Durability (STORE-1): when a mutating call returns OK, its effect survives the loss of this process and of the
// machine's power. When it returns anything else, or the process dies inside it, the effect happened whole or not at
// all. Consistency (STORE-2): calls are linearisable. Every event has its own resource version; versions rise in the
// order of the changes over all jobs and are never reused. Ownership (STORE-3): one process at a time has a store open;
// opening it a second time fails. Threads: all methods may be called from any thread. None blocks on anything but the
// disk.
//
// Errors of all methods: Internal or DataLoss for a store that cannot be read, ResourceExhausted for a full disk.
// Back ends: SqliteStore. store_conformance_test.cc runs against each.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "controller/store/records.h"
#include "sluice/v1/job.pb.h"
#include "sluice/v1/types.pb.h"

namespace sluice::controller {

class Store {
 public:
  virtual ~Store() = default;

  // Made with the store and never changed.
  virtual const std::string& store_id() const = 0;

  // Adds a job in state QUEUED, with its first event. Where the request id made a job before, returns that job as it is
  // now. AlreadyExists, naming the job: the request id was used for another spec.
  virtual absl::StatusOr<AddedJob> AddJob(const RequestId& request, const v1::JobSpec& spec, absl::Time now) = 0;

  // The job that a request id made. NotFound: none yet.
  virtual absl::StatusOr<v1::Job> JobOfRequest(const RequestId& request) = 0;

  // NotFound: no such job.
  virtual absl::StatusOr<v1::Job> GetJob(const std::string& job_id) = 0;

  // One page of the jobs that match. `page_size` > 0. Jobs added between two pages are not in the later one.
  // InvalidArgument: the token is not one of this store's.
  virtual absl::StatusOr<JobPage> ListJobs(const JobFilter& filter, int32_t page_size,
                                           const std::string& page_token) = 0;

  // Jobs that are not final, oldest first.
  virtual absl::StatusOr<std::vector<v1::Job>> UnfinishedJobs() = 0;

  // Number of jobs in each state, indexed by JobState.
  virtual absl::StatusOr<std::vector<int64_t>> CountByState() = 0;

  // Moves a job along one edge of the transition table and appends the event, in one transaction. Returns the job after
  // it. FailedPrecondition: the job is not in `from` (the message names the state it is in). NotFound: no such job.
  // REQUIRES: IsAllowedTransition(from, to), else InvalidArgument; QUEUED to ADMITTED is BeginAttempt's.
  virtual absl::StatusOr<v1::Job> Transition(const std::string& job_id, v1::JobState from, v1::JobState to,
                                             const Change& change) = 0;

  // Moves a job from QUEUED to ADMITTED as its next attempt, with a fresh epoch, and stores where its ranks are; one
  // transaction. FailedPrecondition: the job is not QUEUED. NotFound: no such job.
  virtual absl::StatusOr<AttemptRecord> BeginAttempt(const std::string& job_id, std::vector<Placement> placements,
                                                     const Change& change) = 0;

  // Appends events, and replaces the job's progress and status message, in one transaction. Returns the job after it.
  // FailedPrecondition: the job is final. NotFound: no such job.
  virtual absl::StatusOr<v1::Job> Append(const std::string& job_id, const std::vector<Happening>& happenings,
                                         const v1::Progress* progress, const std::string* status_message) = 0;

  // The job's events with a version above `after`, oldest first, at most `limit`. Of a job with very many events a
  // store may have given up old ones (EventsToRemove). NotFound: no such job.
  virtual absl::StatusOr<std::vector<v1::JobEvent>> EventsSince(const std::string& job_id, int64_t after,
                                                                int64_t limit) = 0;

  // NotFound: no such attempt.
  virtual absl::StatusOr<AttemptRecord> GetAttempt(const std::string& job_id, int32_t attempt) = 0;

  // How many losses of the job counted as restarts. NotFound: no such job.
  virtual absl::StatusOr<int32_t> RestartsUsed(const std::string& job_id) = 0;

  // A fencing number above every one given before, by this process or an earlier one.
  virtual absl::StatusOr<int64_t> NextEpoch() = 0;
};

}  // namespace sluice::controller
