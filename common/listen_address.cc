#include "common/listen_address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <cerrno>
#include <cstring>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace sluice {

absl::StatusOr<ListenAddress> ParseListenAddress(std::string_view address) {
  const std::string text(address);
  const auto error = [&](const char* what) {
    return absl::InvalidArgumentError(absl::StrCat("address ", text.empty() ? "(empty)" : text, ": ", what,
                                                   " (expected host:port, [v6]:port or unix:path)"));
  };
  ListenAddress result;
  if (text.rfind("unix:", 0) == 0) {
    result.is_unix = true;
    result.path = text.substr(5);
    if (result.path.empty()) return error("no path after unix:");
    return result;
  }
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) return error("no port");
  result.host = text.substr(0, colon);
  if (result.host.size() >= 2 && result.host.front() == '[' && result.host.back() == ']') {
    result.host = result.host.substr(1, result.host.size() - 2);
  } else if (result.host.find(':') != std::string::npos) {
    return error("an IPv6 address needs brackets");
  }
  if (result.host.empty()) return error("no host");
  if (!absl::SimpleAtoi(text.substr(colon + 1), &result.port) || result.port < 0 || result.port > 65535) {
    return error("the port is not a number from 0 to 65535");
  }
  return result;
}

bool IsLocalOnly(const ListenAddress& address) {
  if (address.is_unix || address.host == "localhost" || address.host == "::1") return true;
  in_addr ipv4{};
  // Only a numeric address: a name such as 127.example.com may resolve to anything.
  return inet_pton(AF_INET, address.host.c_str(), &ipv4) == 1 && (ntohl(ipv4.s_addr) >> 24) == 127;
}

absl::Status CheckNotInUse(const ListenAddress& address) {
  if (!address.is_unix) return absl::OkStatus();
  sockaddr_un socket_address{};
  socket_address.sun_family = AF_UNIX;
  if (address.path.size() >= sizeof(socket_address.sun_path)) {
    return absl::FailedPreconditionError(absl::StrCat("unix:", address.path, ": a socket's path has at most ",
                                                      sizeof(socket_address.sun_path) - 1, " bytes"));
  }
  address.path.copy(socket_address.sun_path, address.path.size());
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return absl::OkStatus();
  const bool answered = connect(fd, reinterpret_cast<const sockaddr*>(&socket_address), sizeof(socket_address)) == 0;
  close(fd);
  if (!answered) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "cannot listen on unix:", address.path, ": another process does; choose another address, or end that process"));
}

std::string FormatAddress(const ListenAddress& address, int port) {
  if (address.is_unix) return absl::StrCat("unix:", address.path);
  const bool ipv6 = address.host.find(':') != std::string::npos;
  return ipv6 ? absl::StrCat("[", address.host, "]:", port) : absl::StrCat(address.host, ":", port);
}

absl::Status CheckListenable(const ListenAddress& address) {
  if (address.is_unix || address.port == 0) return absl::OkStatus();
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const std::string text = FormatAddress(address, address.port);
  if (const int error = getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
      error != 0) {
    return absl::FailedPreconditionError(absl::StrCat("cannot listen on ", text, ": ", gai_strerror(error)));
  }
  // One address of the host is enough: localhost may have one of a family that is switched off.
  int last_error = 0;
  bool listenable = false;
  for (const addrinfo* candidate = found; candidate != nullptr && last_error != EADDRINUSE;
       candidate = candidate->ai_next) {
    const int probe = socket(candidate->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (probe < 0) {
      last_error = errno;
      continue;
    }
    // As servers do: connections of an earlier server that linger do not count as use.
    const int reuse = 1;
    setsockopt(probe, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof(reuse));
    if (bind(probe, candidate->ai_addr, candidate->ai_addrlen) == 0) {
      listenable = true;
    } else {
      last_error = errno;
    }
    close(probe);
  }
  freeaddrinfo(found);
  if (last_error == EADDRINUSE) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot listen on ", text, ": the port is in use (choose another, or 0 for any free one)"));
  }
  if (listenable) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("cannot listen on ", text, ": ", std::strerror(last_error)));
}

}  // namespace sluice
