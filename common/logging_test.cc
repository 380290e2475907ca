#include "common/logging.h"

#include <gmock/gmock.h>

#include <regex>

#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"

namespace sluice {
namespace {

using ::sluice::testing::StatusIs;
using ::testing::HasSubstr;

TEST(LoggingTest, WritesOneLineWithTimeLevelAndName) {
  ASSERT_OK(SetLogLevel("info"));
  ::testing::internal::CaptureStderr();
  LoggerFor("scheduler").Info("started\nERROR forged");
  LoggerFor("scheduler").Debug("hidden");
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(std::regex_match(
      text,
      std::regex("\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d\\.\\d{3}Z info scheduler: started\\\\nERROR forged\n")))
      << text;
}

TEST(LoggingTest, LevelAppliesToLoggersAlreadyMade) {
  Logger& logger = LoggerFor("part");
  ASSERT_OK(SetLogLevel("debug"));
  ::testing::internal::CaptureStderr();
  logger.Debug("seen");
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("debug part: seen"));
  ASSERT_OK(SetLogLevel("off"));
  ::testing::internal::CaptureStderr();
  logger.Error("unseen");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  EXPECT_THAT(SetLogLevel("loud"), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("loud")));
  ASSERT_OK(SetLogLevel("info"));
}

TEST(LoggingTest, AnObserverGetsWhatIsLoggedAndHidden) {
  std::vector<std::string> seen;
  SetLogObserver([&](LogLevel level, std::string_view message) {
    seen.push_back(absl::StrCat(LogLevelName(level), " ", std::string(message)));
  });
  ASSERT_OK(SetLogLevel("off"));
  LoggerFor("part").Warning("low on room");
  LoggerFor("other").Error("gone");
  SetLogObserver({});
  LoggerFor("part").Warning("unseen");
  ASSERT_OK(SetLogLevel("info"));
  EXPECT_THAT(seen, ::testing::ElementsAre("warning low on room", "error gone"));
}

TEST(OneLineTest, EscapesControlCharactersOnly) {
  EXPECT_EQ(OneLine("gr\xC3\xB6\xC3\x9F\x65\t{}"), "gr\xC3\xB6\xC3\x9F\x65\t{}");
  EXPECT_EQ(OneLine("\x1b[31m\r"), "\\x1b[31m\\x0d");
}

}  // namespace
}  // namespace sluice
