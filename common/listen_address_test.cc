#include "common/listen_address.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"

namespace sluice {
namespace {

using ::sluice::testing::StatusIs;
using ::testing::HasSubstr;

TEST(ListenAddressTest, ParsesAndFormats) {
  for (const char* text : {"127.0.0.1:7070", "[::1]:0", "localhost:80", "0.0.0.0:65535", "unix:/tmp/s.sock"}) {
    ASSERT_OK_AND_ASSIGN(const ListenAddress address, ParseListenAddress(text));
    EXPECT_EQ(FormatAddress(address, address.port), text);
  }
}

TEST(ListenAddressTest, RejectsOthers) {
  for (const char* text : {"", "7070", ":7070", "host:", "host:x", "host:-1", "host:65536", "::1:80", "unix:"}) {
    EXPECT_THAT(ParseListenAddress(text), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("expected host:port")))
        << text;
  }
}

TEST(ListenAddressTest, KnowsWhatIsLocal) {
  for (const char* text : {"127.0.0.1:1", "127.8.8.8:1", "[::1]:1", "localhost:1", "unix:/x"}) {
    EXPECT_TRUE(IsLocalOnly(*ParseListenAddress(text))) << text;
  }
  for (const char* text : {"0.0.0.0:1", "[::]:1", "10.0.0.1:1", "127.example.com:1", "128.0.0.1:1"}) {
    EXPECT_FALSE(IsLocalOnly(*ParseListenAddress(text))) << text;
  }
}

TEST(ListenAddressTest, AUnixSocketThatAnswersIsInUse) {
  const testing::TempDir dir;
  ListenAddress address;
  address.is_unix = true;
  address.path = dir.Join("s.sock");
  EXPECT_OK(CheckNotInUse(address));
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  address.path.copy(name.sun_path, address.path.size());
  ASSERT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&name), sizeof(name)), 0);
  ASSERT_EQ(listen(fd, 1), 0);
  EXPECT_THAT(CheckNotInUse(address),
              testing::StatusIs(absl::StatusCode::kFailedPrecondition, ::testing::HasSubstr("another process")));
  close(fd);
  EXPECT_OK(CheckNotInUse(address)) << "the path of a dead process is free";
  address.path = std::string(200, 'x');
  EXPECT_THAT(CheckNotInUse(address),
              testing::StatusIs(absl::StatusCode::kFailedPrecondition, ::testing::HasSubstr("at most 107")));
}

}  // namespace
}  // namespace sluice
