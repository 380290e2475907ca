#include "common/metrics_server.h"

#include <exception>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/listen_address.h"
#include "common/status_macros.h"
#include "prometheus/exposer.h"

namespace sluice {

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(const std::string& address,
                                                                    std::shared_ptr<Metrics> metrics) {
  ASSIGN_OR_RETURN(const ListenAddress parsed, ParseListenAddress(address));
  if (parsed.is_unix) return absl::InvalidArgumentError(absl::StrCat("metrics address ", address, ": needs host:port"));
  // The HTTP server takes numeric addresses only.
  const std::string numeric = parsed.host == "localhost" ? absl::StrCat("127.0.0.1:", parsed.port) : address;
  try {
    auto exposer = std::make_unique<prometheus::Exposer>(numeric, /*num_threads=*/2);
    exposer->RegisterCollectable(metrics);
    const std::vector<int> ports = exposer->GetListeningPorts();
    if (ports.empty()) return absl::InternalError(absl::StrCat("metrics address ", address, ": no port was opened"));
    return std::unique_ptr<MetricsServer>(new MetricsServer(std::move(exposer), std::move(metrics), ports[0]));
  } catch (const std::exception& error) {
    return absl::FailedPreconditionError(absl::StrCat("metrics address ", address, ": cannot listen (", error.what(),
                                                      "); is the port in use? Choose another, or 0 for any free one"));
  }
}

MetricsServer::MetricsServer(std::unique_ptr<prometheus::Exposer> exposer, std::shared_ptr<Metrics> metrics, int port)
    : metrics_(std::move(metrics)), exposer_(std::move(exposer)), port_(port) {}

MetricsServer::~MetricsServer() = default;

}  // namespace sluice
