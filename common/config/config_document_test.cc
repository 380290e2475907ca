#include "common/config/config_document.h"

#include <fstream>
#include <sstream>

#include "common/config/job_reader.h"
#include "common/testing/status_matchers.h"

namespace sluice {
namespace {

constexpr char kPage[] = "docs/config.md";

LoadOptions Options(const std::string& text, std::vector<std::string> overrides = {}) {
  LoadOptions options;
  options.file = "job.yaml";
  options.text = text;
  options.overrides = std::move(overrides);
  options.env = [](const std::string&) { return std::nullopt; };
  options.working_folder = "/folder";
  return options;
}

TEST(ConfigDocumentTest, PageInTheTreeIsTheGeneratedOne) {
  std::ifstream file(kPage);
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_TRUE(text.str() == ConfigMarkdown())
      << kPage << " is out of date. Run: build/bin/sluice config --markdown > docs/config.md";
}

TEST(ConfigDocumentTest, PageOfRewardsIsTheGeneratedOne) {
  std::ifstream file("docs/rewards.md");
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_TRUE(text.str() == RewardsMarkdown())
      << "docs/rewards.md is out of date. Run: build/bin/sluice config --rewards > docs/rewards.md";
}

TEST(ConfigDocumentTest, DefaultsTextIsAJobWithEveryDefault) {
  const std::vector<std::string> required = {"model.path=m", "data.train_files=t"};
  ASSERT_OK_AND_ASSIGN(const v1::JobSpec written, LoadJobSpec(Options(DefaultsText(), required)));
  ASSERT_OK_AND_ASSIGN(const v1::JobSpec filled, LoadJobSpec(Options("x-empty: {}", required)));
  EXPECT_EQ(written.DebugString(), filled.DebugString());
}

TEST(ConfigDocumentTest, NoLineOfTheDefaultsIsTooLong) {
  std::istringstream lines(DefaultsText());
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 120u) << line;
}

}  // namespace
}  // namespace sluice
