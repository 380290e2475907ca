#include "engine/service/warning_box.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "common/logging.h"

namespace sluice::engine {
namespace {

// Numbers and lists of them, "3", "0.25", "4,17,9", become one character.
std::string WithoutNumbers(std::string_view message) {
  std::string text;
  for (size_t i = 0; i < message.size(); ++i) {
    const auto is_digit = [&](size_t at) {
      return at < message.size() && absl::ascii_isdigit(static_cast<unsigned char>(message[at]));
    };
    const bool between = i > 0 && (message[i] == ',' || message[i] == '.') && is_digit(i - 1) && is_digit(i + 1);
    if (!is_digit(i) && !between) {
      text += message[i];
    } else if (text.empty() || text.back() != '#') {
      text += '#';
    }
  }
  return text;
}

}  // namespace

void WarningBox::Add(std::string_view message) {
  std::string line = OneLine(message);
  std::string key = WithoutNumbers(line);
  absl::MutexLock lock(&mutex_);
  if (seen_.size() > kMost || !seen_.insert(std::move(key)).second) return;
  if (seen_.size() > kMost) line = "there are further warnings, which the log has";
  waiting_.push_back(std::move(line));
}

std::vector<std::string> WarningBox::Take() {
  absl::MutexLock lock(&mutex_);
  return std::exchange(waiting_, {});
}

}  // namespace sluice::engine
