// Log lines for people, one line each on standard error: time, level, name of the part, message. spdlog stays behind
// this header.
//   Logger& log = LoggerFor("scheduler");
//   log.Info(absl::StrCat("job ", job_id, " starts on ", workers));
// Threads: everything here may be called from any thread; lines of several threads do not mix.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace sluice {

enum class LogLevel { kDebug, kInfo, kWarning, kError };
inline constexpr LogLevel kLogLevels[] = {LogLevel::kDebug, LogLevel::kInfo, LogLevel::kWarning, LogLevel::kError};

// `debug`, `info`, `warning`, `error`.
const char* LogLevelName(LogLevel level);

class Logger {
 public:
  virtual ~Logger() = default;
  virtual void Log(LogLevel level, std::string_view message) = 0;

  void Debug(std::string_view message) { Log(LogLevel::kDebug, message); }
  void Info(std::string_view message) { Log(LogLevel::kInfo, message); }
  void Warning(std::string_view message) { Log(LogLevel::kWarning, message); }
  void Error(std::string_view message) { Log(LogLevel::kError, message); }
};

// Sets the lowest level that is written, for all loggers: `debug`, `info`, `warning`, `error` or `off`. InvalidArgument
// for another word. Before the first call it is `info`.
absl::Status SetLogLevel(std::string_view level);

// The logger of one part of the program, made at the first call. Lives until the process ends.
Logger& LoggerFor(std::string_view name);

// How many messages of this level this process has logged, those that SetLogLevel hides among them.
int64_t LogMessages(LogLevel level);

// Called with every message that is logged from now on, those that SetLogLevel hides among them, from the thread that
// logs. It may not log, nor set an observer. An empty function ends it; when SetLogObserver returns, no call to the one
// before is under way.
using LogObserver = std::function<void(LogLevel level, std::string_view message)>;
void SetLogObserver(LogObserver observer);

// `text` as it may stand in one line: line feeds and other control characters become their escapes. Logger applies it
// to every message, so that what a peer sent cannot forge a line.
std::string OneLine(std::string_view text);

}  // namespace sluice
