#include "common/listen_address.h"

#include "common/testing/status_matchers.h"

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

}  // namespace
}  // namespace sluice
