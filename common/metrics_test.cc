#include "common/metrics.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <regex>
#include <set>
#include <sstream>

#include "absl/strings/escaping.h"
#include "common/logging.h"
#include "common/metrics_server.h"
#include "common/testing/status_matchers.h"
#include "nlohmann/json.hpp"

namespace sluice {
namespace {

using ::sluice::testing::StatusIs;
using ::testing::HasSubstr;

nlohmann::json Cases() { return nlohmann::json::parse(std::ifstream("tests/golden/metrics/M01.json")); }

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
}

// The one sample line of the page that starts with `name{`.
std::vector<std::string> LinesStarting(const std::string& page, const std::string& start) {
  std::vector<std::string> lines;
  std::istringstream stream(page);
  for (std::string line; std::getline(stream, line);) {
    if (line.rfind(start, 0) == 0) lines.push_back(line);
  }
  return lines;
}

TEST(MetricsCatalogueTest, IdsAreIndicesAndNamesFollowTheRules) {
  std::set<std::string> names;
  const std::regex name_rule("[a-zA-Z_:][a-zA-Z0-9_:]*");
  for (size_t i = 0; i < MetricCatalogue().size(); ++i) {
    const MetricDefinition& metric = MetricCatalogue()[i];
    const std::string name = metric.name;
    EXPECT_EQ(static_cast<size_t>(metric.id), i) << name;
    EXPECT_TRUE(names.insert(name).second) << name;
    EXPECT_TRUE(std::regex_match(name, name_rule)) << name;
    EXPECT_TRUE(name.rfind("sluice_", 0) == 0 || name.rfind("process_", 0) == 0) << name;
    EXPECT_EQ(metric.type == MetricType::kCounter, name.size() > 6 && name.substr(name.size() - 6) == "_total") << name;
    EXPECT_EQ(metric.type == MetricType::kHistogram, !metric.buckets.empty()) << name;
    EXPECT_TRUE(std::is_sorted(metric.buckets.begin(), metric.buckets.end())) << name;
    for (const std::string& label : metric.labels) EXPECT_TRUE(label != "job" && label != "instance") << name;
    EXPECT_EQ(std::string(metric.help).back(), '.') << name;
  }
}

TEST(MetricsCatalogueTest, DocumentationIsTheCatalogue) {
  if (std::getenv("SLUICE_UPDATE_GOLDENS") != nullptr) std::ofstream("docs/metrics.md") << MetricsPage();
  EXPECT_EQ(ReadFile("docs/metrics.md"), MetricsPage()) << "run this test once with SLUICE_UPDATE_GOLDENS=1";
}

TEST(MetricsTest, OddLabelValuesAreEscapedAndThePageStaysWhole) {
  Metrics metrics(MetricRole::kWorker);
  const nlohmann::json cases = Cases();
  for (const auto& label : cases["labels"]) {
    const std::string value = label.contains("label_value")
                                  ? label["label_value"].get<std::string>()
                                  : absl::HexStringToBytes(label["label_bytes_hex"].get<std::string>());
    metrics.Set(MetricId::kTrainStep, {value}, 1);
    // The case's own family is demo_value{name=...}; ours has another name, the same label text.
    std::string expected = label["line"].get<std::string>();
    expected = std::regex_replace(expected, std::regex("^demo_value\\{name="), "sluice_train_step{job_id=");
    expected.resize(expected.rfind("} ") + 2);
    const std::string page = metrics.Text();
    const std::vector<std::string> lines = LinesStarting(page, "sluice_train_step{");
    ASSERT_EQ(lines.size(), 1u) << page;
    EXPECT_EQ(lines[0].substr(0, expected.size()), expected);
    EXPECT_DOUBLE_EQ(std::stod(lines[0].substr(lines[0].rfind(' ') + 1)), 1.0);
    metrics.Remove(MetricId::kTrainStep, {value});
    EXPECT_TRUE(LinesStarting(metrics.Text(), "sluice_train_step{").empty());
  }
}

TEST(MetricsTest, LongLabelValuesAreCutAtACharacter) {
  Metrics metrics(MetricRole::kWorker);
  std::string value = "x";
  while (value.size() < 2000) value += "\xC3\xB6";
  metrics.Set(MetricId::kTrainStep, {value}, 1);
  const std::vector<std::string> lines = LinesStarting(metrics.Text(), "sluice_train_step{");
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_THAT(lines[0], HasSubstr("\xC3\xB6...\"}"));
  EXPECT_EQ(ToValidUtf8(lines[0]), lines[0]);
  EXPECT_LT(lines[0].size(), 1100u);
}

TEST(MetricsTest, ValuesArePrintedAsPrometheusReadsThem) {
  Metrics metrics(MetricRole::kWorker);
  const auto printed = [&](double value) {
    metrics.Set(MetricId::kTrainLoss, {"j"}, value);
    const std::string line = LinesStarting(metrics.Text(), "sluice_train_loss{").at(0);
    return line.substr(line.rfind(' ') + 1);
  };
  EXPECT_EQ(printed(std::numeric_limits<double>::infinity()), "+Inf");
  EXPECT_EQ(printed(-std::numeric_limits<double>::infinity()), "-Inf");
  EXPECT_THAT(printed(std::nan("")), ::testing::AnyOf("NaN", "Nan"));
  for (const double value : {1.0, 0.1, 1e-9, 9007199254740992.0, -0.0}) EXPECT_EQ(std::stod(printed(value)), value);
}

TEST(MetricsTest, HelpIsEscaped) {
  const std::string page = Metrics(MetricRole::kBoth).Text();
  for (const MetricDefinition& metric : MetricCatalogue()) {
    EXPECT_EQ(LinesStarting(page, std::string("# HELP ") + metric.name + " ").size(), 1u) << metric.name;
    EXPECT_EQ(LinesStarting(page, std::string("# TYPE ") + metric.name + " ").size(), 1u) << metric.name;
  }
  const nlohmann::json cases = Cases();
  for (const auto& help : cases["help_lines"]) {
    EXPECT_EQ("# HELP demo_value " + EscapeMetricHelp(help["help"].get<std::string>()),
              help["line"].get<std::string>());
  }
}

TEST(MetricsTest, CountersAddGaugesHoldHistogramsCumulate) {
  Metrics metrics(MetricRole::kController);
  metrics.Increment(MetricId::kJobTransitions, {"QUEUED", "ADMITTED", "none"});
  metrics.Increment(MetricId::kJobTransitions, {"QUEUED", "ADMITTED", "none"}, 2);
  EXPECT_EQ(metrics.ValueForTest(MetricId::kJobTransitions, {"QUEUED", "ADMITTED", "none"}), 3);
  for (const double seconds : {0.001, 0.002, 99.0}) metrics.Observe(MetricId::kStoreCommitDuration, {}, seconds);
  const std::string page = metrics.Text();
  EXPECT_THAT(page, HasSubstr("sluice_store_commit_duration_seconds_bucket{le=\"0.001\"} 1\n"));
  EXPECT_THAT(page, HasSubstr("sluice_store_commit_duration_seconds_bucket{le=\"10\"} 2\n"));
  EXPECT_THAT(page, HasSubstr("sluice_store_commit_duration_seconds_bucket{le=\"+Inf\"} 3\n"));
  EXPECT_THAT(page, HasSubstr("sluice_store_commit_duration_seconds_count 3\n"));
}

TEST(MetricsTest, ARoleExportsItsOwnAndTheCommonMetrics) {
  const std::string page = Metrics(MetricRole::kWorker).Text();
  EXPECT_THAT(page, HasSubstr("sluice_train_step"));
  EXPECT_THAT(page, HasSubstr("sluice_build_info{version="));
  EXPECT_THAT(page, ::testing::Not(HasSubstr("sluice_jobs")));
  EXPECT_TRUE(std::regex_search(page, std::regex("\nprocess_resident_memory_bytes [1-9]")));
  EXPECT_TRUE(std::regex_search(page, std::regex("\nprocess_open_fds [1-9]")));
  EXPECT_TRUE(std::regex_search(page, std::regex("\nprocess_start_time_seconds [1-9]")));
}

TEST(MetricsTest, LogMessagesAreCountedByLevel) {
  const Metrics metrics(MetricRole::kController);
  const auto count = [&](const std::string& level) {
    const std::string line = LinesStarting(metrics.Text(), "sluice_log_messages_total{level=\"" + level + "\"} ").at(0);
    return std::stol(line.substr(line.rfind(' ')));
  };
  const int64_t warnings = count("warning"), errors = count("error"), infos = count("info");
  ASSERT_OK(SetLogLevel("off"));  // what is hidden counts too
  LoggerFor("part").Warning("one");
  LoggerFor("other").Warning("two");
  LoggerFor("part").Error("three");
  ASSERT_OK(SetLogLevel("info"));
  EXPECT_EQ(count("warning"), warnings + 2);
  EXPECT_EQ(count("error"), errors + 1);
  EXPECT_EQ(count("info"), infos);
  EXPECT_GE(count("debug"), 0);
}

TEST(ToValidUtf8Test, ReplacesEachIllFormedPart) {
  EXPECT_EQ(ToValidUtf8("a\xC0\x80z"), "a\xEF\xBF\xBD\xEF\xBF\xBDz");              // overlong
  EXPECT_EQ(ToValidUtf8("\xED\xA0\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");  // surrogate
  EXPECT_EQ(ToValidUtf8("\xF0\x9F\x99"), "\xEF\xBF\xBD");                          // cut
  EXPECT_EQ(ToValidUtf8("\xF0\x9F\x99\x82"), "\xF0\x9F\x99\x82");
}

TEST(MetricsServerTest, PortInUseAndBadAddressesAreErrors) {
  auto metrics = std::make_shared<Metrics>(MetricRole::kBoth);
  ASSERT_OK_AND_ASSIGN(const auto server, MetricsServer::Start("localhost:0", metrics));
  EXPECT_GT(server->port(), 0);
  EXPECT_THAT(MetricsServer::Start("127.0.0.1:" + std::to_string(server->port()), metrics),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("in use")));
  EXPECT_THAT(MetricsServer::Start("nonsense", metrics),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("nonsense")));
}

}  // namespace
}  // namespace sluice
