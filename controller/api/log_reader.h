// The GetJobLogs streams: bytes that a rank's process wrote, read from the worker that hosts it piece by piece, one
// write at a time. With `follow` a stream asks again until the job is final and the log is read to its end.
#pragma once

#include "absl/time/time.h"
#include "common/thread_pool.h"
#include "controller/dataflow/worker_client.h"
#include "controller/store/store.h"
#include "grpcpp/support/server_callback.h"
#include "sluice/v1/controller.pb.h"

namespace sluice::controller {

struct LogReaderEnvironment {
  Store* store;
  ThreadPool* pool;
  WorkerClientFactory clients;
  absl::Duration poll_interval = absl::Milliseconds(250);
};

// The reactor of one stream; deletes itself when gRPC is done with it. NotFound: no such job, attempt or rank.
// FailedPrecondition: the job has not begun an attempt yet (and `follow` is not set). Unavailable: the worker does not
// answer. REQUIRES: what is in `environment` outlives the stream.
grpc::ServerWriteReactor<v1::GetJobLogsResponse>* OpenLog(const LogReaderEnvironment& environment,
                                                          const v1::GetJobLogsRequest& request);

}  // namespace sluice::controller
