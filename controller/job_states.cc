#include "controller/job_states.h"

namespace sluice::controller {
namespace {

struct Edge {
  v1::JobState from;
  v1::JobState to;
};

constexpr Edge kEdges[] = {
    {v1::JOB_STATE_QUEUED, v1::JOB_STATE_ADMITTED},
    {v1::JOB_STATE_QUEUED, v1::JOB_STATE_CANCELLED},

    {v1::JOB_STATE_ADMITTED, v1::JOB_STATE_STARTING},
    {v1::JOB_STATE_ADMITTED, v1::JOB_STATE_RECOVERING},
    {v1::JOB_STATE_ADMITTED, v1::JOB_STATE_CANCELLING},

    {v1::JOB_STATE_STARTING, v1::JOB_STATE_RUNNING},
    {v1::JOB_STATE_STARTING, v1::JOB_STATE_RECOVERING},
    {v1::JOB_STATE_STARTING, v1::JOB_STATE_CANCELLING},
    {v1::JOB_STATE_STARTING, v1::JOB_STATE_FAILED},

    {v1::JOB_STATE_RUNNING, v1::JOB_STATE_CHECKPOINTING},
    {v1::JOB_STATE_RUNNING, v1::JOB_STATE_RECOVERING},
    {v1::JOB_STATE_RUNNING, v1::JOB_STATE_CANCELLING},
    {v1::JOB_STATE_RUNNING, v1::JOB_STATE_SUCCEEDED},
    {v1::JOB_STATE_RUNNING, v1::JOB_STATE_FAILED},

    {v1::JOB_STATE_CHECKPOINTING, v1::JOB_STATE_RUNNING},
    {v1::JOB_STATE_CHECKPOINTING, v1::JOB_STATE_RECOVERING},
    {v1::JOB_STATE_CHECKPOINTING, v1::JOB_STATE_CANCELLING},
    {v1::JOB_STATE_CHECKPOINTING, v1::JOB_STATE_FAILED},

    // FAILED from here: the last allowed attempt was lost.
    {v1::JOB_STATE_RECOVERING, v1::JOB_STATE_QUEUED},
    {v1::JOB_STATE_RECOVERING, v1::JOB_STATE_CANCELLING},
    {v1::JOB_STATE_RECOVERING, v1::JOB_STATE_FAILED},

    // Nothing else: once a cancel was acknowledged, the job ends as cancelled.
    {v1::JOB_STATE_CANCELLING, v1::JOB_STATE_CANCELLED},
};

// The value's name without the enum's prefix.
std::string WithoutPrefix(const std::string& name, size_t prefix_length) {
  return name.size() > prefix_length ? name.substr(prefix_length) : "UNSPECIFIED";
}

}  // namespace

bool IsAllowedTransition(v1::JobState from, v1::JobState to) {
  for (const Edge& edge : kEdges) {
    if (edge.from == from && edge.to == to) return true;
  }
  return false;
}

bool IsTerminal(v1::JobState state) {
  return state == v1::JOB_STATE_SUCCEEDED || state == v1::JOB_STATE_FAILED || state == v1::JOB_STATE_CANCELLED;
}

const std::vector<v1::JobState>& AllJobStates() {
  static const auto* const states = new std::vector<v1::JobState>{
      v1::JOB_STATE_QUEUED,        v1::JOB_STATE_ADMITTED,   v1::JOB_STATE_STARTING,   v1::JOB_STATE_RUNNING,
      v1::JOB_STATE_CHECKPOINTING, v1::JOB_STATE_RECOVERING, v1::JOB_STATE_CANCELLING, v1::JOB_STATE_SUCCEEDED,
      v1::JOB_STATE_FAILED,        v1::JOB_STATE_CANCELLED};
  return *states;
}

std::string StateName(v1::JobState state) { return WithoutPrefix(v1::JobState_Name(state), sizeof("JOB_STATE_") - 1); }

std::string ReasonName(v1::FailureReason reason) {
  return WithoutPrefix(v1::FailureReason_Name(reason), sizeof("FAILURE_REASON_") - 1);
}

}  // namespace sluice::controller
