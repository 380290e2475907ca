// Serves /metrics over HTTP for Prometheus to pull.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/metrics.h"

namespace prometheus {
class Exposer;
}

namespace sluice {

class MetricsServer {
 public:
  // Listens on `address` (host:port; port 0: the system chooses) and serves until it is destroyed. Keeps `metrics`
  // alive. FailedPrecondition: the address cannot be listened on. InvalidArgument: not an address of that form.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(const std::string& address,
                                                              std::shared_ptr<Metrics> metrics);

  ~MetricsServer();
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;

  int port() const { return port_; }

 private:
  MetricsServer(std::unique_ptr<prometheus::Exposer> exposer, std::shared_ptr<Metrics> metrics, int port);

  std::shared_ptr<Metrics> metrics_;  // the exposer holds it weakly
  std::unique_ptr<prometheus::Exposer> exposer_;
  int port_;
};

}  // namespace sluice
