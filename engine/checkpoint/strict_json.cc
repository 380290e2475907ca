#include "engine/checkpoint/strict_json.h"

#include <cmath>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace sluice::engine {
namespace {

// Far above any real file, far below what recursion over the parsed value can bear.
constexpr int kMaximumDepth = 200;

bool HoldsNonFinite(const nlohmann::json& value) {
  if (value.is_number_float()) return !std::isfinite(value.get<double>());
  if (!value.is_structured()) return false;
  for (const nlohmann::json& child : value) {
    if (HoldsNonFinite(child)) return true;
  }
  return false;
}

}  // namespace

std::string JsonErrorText(const std::exception& error) {
  std::string text = error.what();
  // "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error ... - reason; last read: 'bytes'".
  if (const size_t end = text.find("; last read: "); end != std::string::npos) text.resize(end);
  if (const size_t start = text.find(" - "); start != std::string::npos) return text.substr(start + 3);
  if (const size_t start = text.find("] "); start != std::string::npos) return text.substr(start + 2);
  return text;
}

absl::StatusOr<nlohmann::json> ParseJsonObject(const std::string& text, const std::string& what) {
  if (const size_t nul = text.find('\0'); nul != std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": not JSON at byte ", nul, ": NUL"));
  }
  std::vector<std::set<std::string>> keys;  // of the open objects
  std::string problem;
  const auto watch = [&](int depth, nlohmann::json::parse_event_t event, nlohmann::json& parsed) {
    using Event = nlohmann::json::parse_event_t;
    if (event == Event::object_start) keys.emplace_back();
    if (event == Event::object_end) keys.pop_back();
    if (event == Event::key && !keys.back().insert(parsed.get<std::string>()).second && problem.empty()) {
      problem = absl::StrCat("the key \"", parsed.get<std::string>(), "\" is given twice");
    }
    if (depth > kMaximumDepth && problem.empty())
      problem = absl::StrCat("nested deeper than ", kMaximumDepth, " levels");
    return problem.empty();  // false drops the part just read, which keeps a hostile file small
  };
  nlohmann::json value;
  try {
    value = nlohmann::json::parse(text, watch);
  } catch (const nlohmann::json::parse_error& error) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, ": not JSON at byte ", error.byte, ": ", JsonErrorText(error)));
  } catch (const nlohmann::json::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": not JSON: ", JsonErrorText(error)));
  }
  if (!problem.empty()) return absl::InvalidArgumentError(absl::StrCat(what, ": ", problem));
  if (!value.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": is a JSON ", value.type_name(), ", expected an object"));
  }
  return value;
}

absl::StatusOr<std::string> DumpJson(const nlohmann::json& value, int indent, const std::string& what) {
  if (HoldsNonFinite(value)) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": holds NaN or infinity, which JSON cannot"));
  }
  try {
    return value.dump(indent);
  } catch (const nlohmann::json::exception&) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": holds text that is not UTF-8"));
  }
}

}  // namespace sluice::engine
