#include "common/logging.h"

#include <atomic>
#include <iterator>
#include <map>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "spdlog/sinks/stdout_sinks.h"
#include "spdlog/spdlog.h"

namespace sluice {
namespace {

std::atomic<int64_t> message_counts[std::size(kLogLevels)];

class ObserverSlot {
 public:
  void Set(LogObserver observer) {
    absl::MutexLock lock(&mutex_);
    observer_ = std::move(observer);
  }
  void Call(LogLevel level, std::string_view message) {
    absl::MutexLock lock(&mutex_);
    if (observer_) observer_(level, message);
  }

 private:
  absl::Mutex mutex_;
  LogObserver observer_ ABSL_GUARDED_BY(mutex_);
};

// Never destroyed, as AllLoggers.
ObserverSlot& Observer() {
  static ObserverSlot* const slot = new ObserverSlot;
  return *slot;
}

class SpdlogLogger final : public Logger {
 public:
  SpdlogLogger(const std::string& name, spdlog::sink_ptr sink) : logger_(name, std::move(sink)) {
    // UTC, so that lines of hosts in several zones sort.
    logger_.set_pattern("%Y-%m-%dT%H:%M:%S.%eZ %l %n: %v", spdlog::pattern_time_type::utc);
    logger_.flush_on(spdlog::level::trace);
  }

  void Log(LogLevel level, std::string_view message) override {
    message_counts[static_cast<size_t>(level)].fetch_add(1, std::memory_order_relaxed);
    Observer().Call(level, message);
    const spdlog::level::level_enum spdlog_level = ToSpdlog(level);
    if (!logger_.should_log(spdlog_level)) return;
    const std::string line = OneLine(message);
    logger_.log(spdlog_level, spdlog::string_view_t(line.data(), line.size()));
  }

  void SetLevel(spdlog::level::level_enum level) { logger_.set_level(level); }

 private:
  static spdlog::level::level_enum ToSpdlog(LogLevel level) {
    switch (level) {
      case LogLevel::kDebug:
        return spdlog::level::debug;
      case LogLevel::kInfo:
        return spdlog::level::info;
      case LogLevel::kWarning:
        return spdlog::level::warn;
      case LogLevel::kError:
        return spdlog::level::err;
    }
    return spdlog::level::info;
  }

  spdlog::logger logger_;
};

class Loggers {
 public:
  Logger& Get(std::string_view name) {
    absl::MutexLock lock(&mutex_);
    std::unique_ptr<SpdlogLogger>& logger = loggers_[std::string(name)];
    if (logger == nullptr) {
      logger = std::make_unique<SpdlogLogger>(std::string(name), sink_);
      logger->SetLevel(level_);
    }
    return *logger;
  }

  void SetLevel(spdlog::level::level_enum level) {
    absl::MutexLock lock(&mutex_);
    level_ = level;
    for (auto& [name, logger] : loggers_) logger->SetLevel(level);
  }

 private:
  absl::Mutex mutex_;
  std::map<std::string, std::unique_ptr<SpdlogLogger>> loggers_ ABSL_GUARDED_BY(mutex_);
  spdlog::level::level_enum level_ ABSL_GUARDED_BY(mutex_) = spdlog::level::info;
  const spdlog::sink_ptr sink_ = std::make_shared<spdlog::sinks::stderr_sink_mt>();
};

// Never destroyed: threads and static destructors may log until the very end.
Loggers& AllLoggers() {
  static Loggers* const loggers = new Loggers;
  return *loggers;
}

}  // namespace

absl::Status SetLogLevel(std::string_view level) {
  static const auto* const kLevels =
      new std::map<std::string_view, spdlog::level::level_enum>{{"debug", spdlog::level::debug},
                                                                {"info", spdlog::level::info},
                                                                {"warning", spdlog::level::warn},
                                                                {"error", spdlog::level::err},
                                                                {"off", spdlog::level::off}};
  const auto found = kLevels->find(level);
  if (found == kLevels->end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("log level: ", std::string(level), " is not one of debug, info, warning, error, off"));
  }
  AllLoggers().SetLevel(found->second);
  return absl::OkStatus();
}

const char* LogLevelName(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kError:
      return "error";
  }
  return "";
}

void SetLogObserver(LogObserver observer) { Observer().Set(std::move(observer)); }

int64_t LogMessages(LogLevel level) {
  return message_counts[static_cast<size_t>(level)].load(std::memory_order_relaxed);
}

Logger& LoggerFor(std::string_view name) { return AllLoggers().Get(name); }

std::string OneLine(std::string_view text) {
  std::string line;
  line.reserve(text.size());
  for (const char character : text) {
    const auto byte = static_cast<unsigned char>(character);
    if (character == '\n') {
      line += "\\n";
    } else if (character == '\t' || (byte >= 0x20 && byte != 0x7f)) {
      line += character;
    } else {
      absl::StrAppendFormat(&line, "\\x%02x", byte);
    }
  }
  return line;
}

}  // namespace sluice
