// The threads that do the work of calls, so that gRPC's own threads never wait. Three pools, so that the slow do not
// hold up the quick: heartbeats are never behind submissions, nor reads behind logs.
#pragma once

#include "common/thread_pool.h"

namespace sluice::controller {

struct Executors {
  ThreadPool calls{4};
  ThreadPool heartbeats{2};
  ThreadPool logs{2};
};

}  // namespace sluice::controller
