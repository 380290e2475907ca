// Addresses that daemons listen on: `host:port`, `[v6]:port` or `unix:path`.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sluice {

struct ListenAddress {
  bool is_unix = false;
  std::string path;  // unix only
  std::string host;  // without brackets
  int port = 0;      // 0: the system chooses
};

// InvalidArgument, with what was expected, for anything else.
absl::StatusOr<ListenAddress> ParseListenAddress(std::string_view address);

// Whether only this host can connect: a unix socket, 127.0.0.0/8, ::1, or `localhost`.
bool IsLocalOnly(const ListenAddress& address);

// FailedPrecondition where a process answers at a unix socket's path: gRPC would take the path away from it without a
// word. OK for other addresses, whose listening fails by itself when they are in use, and for a path that a dead
// process left behind.
absl::Status CheckNotInUse(const ListenAddress& address);

// The address as gRPC and people write it, with `port` in place of address.port.
std::string FormatAddress(const ListenAddress& address, int port);

// Whether the address can be listened on now: for a clear message before anything is written. A port may still be taken
// between this and the listening. FailedPrecondition: in use, or not an address of this host. A unix path and port 0
// always pass.
absl::Status CheckListenable(const ListenAddress& address);

}  // namespace sluice
