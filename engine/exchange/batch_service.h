// Batches between engines over gRPC: what a store keeps is served to whoever knows its id, and fetched by reference.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "engine/exchange/batch_store.h"

namespace grpc {
class Server;
}

namespace sluice::engine {

class BatchServer {
 public:
  // Serves the store on a free port of the interface `host`. REQUIRES: the store outlives the server. Unavailable: no
  // port can be had.
  static absl::StatusOr<std::unique_ptr<BatchServer>> Start(const std::string& host, BatchStore* store);
  // Ends the calls that run.
  ~BatchServer();

  // `host:port`, or `[v6]:port`.
  const std::string& address() const { return address_; }

 private:
  class Service;
  BatchServer(std::unique_ptr<Service> service, std::unique_ptr<grpc::Server> server, std::string address);

  const std::unique_ptr<Service> service_;
  const std::unique_ptr<grpc::Server> server_;
  const std::string address_;
};

struct FetchedBatch {
  std::shared_ptr<arrow::RecordBatch> batch;
  int64_t bytes = 0;  // on the wire
};

// The chosen rows of a batch (BatchStore::Take). Blocks. NotFound: it is not kept any more. Aborted: its owner
// cannot be reached, or is gone.
absl::StatusOr<FetchedBatch> FetchBatch(const std::string& address, const std::string& id, const RowChoice& choice,
                                        absl::Duration timeout);

}  // namespace sluice::engine
