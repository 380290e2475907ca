#include "common/metrics_server.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <exception>
#include <thread>
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

// The HTTP server notices that it should end only when its poll for connections returns, after 2 seconds; connections
// make it return.
MetricsServer::~MetricsServer() {
  std::atomic<bool> ended = false;
  std::thread ender([&] {
    exposer_.reset();
    ended.store(true);
  });
  while (!ended.load()) {
    const int knock = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(port_));
    // Refused where it listens on another address only: then it takes its 2 seconds.
    connect(knock, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
    pollfd wait{knock, POLLIN, 0};
    poll(&wait, 1, /*timeout_ms=*/20);
    close(knock);
  }
  ender.join();
}

}  // namespace sluice
