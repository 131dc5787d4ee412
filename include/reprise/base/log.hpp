#pragma once
// What the library says while it works: nothing, unless asked.
//
//   REPRISE_LOG=info ./train                  to stderr: notices, and what was captured and planned
// ```cpp
// const auto sink = [](LogLevel, const std::string& text) { my_logger(text); };
// base::Log log{"resnet", LogLevel::notice, sink};
// log.notice("from now on this step runs eagerly: …");
// ```

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <string>
#include <string_view>
#include <utility>

#include <reprise/base/rooms.hpp>

namespace reprise::base {

enum class LogLevel : std::uint8_t {
  quiet,  ///< nothing
  /// what a user should know: a step that cannot be run from its graph, a budget that is met only
  /// by moving out
  notice,
  info,  ///< also what was captured, planned, checked
};

/// What REPRISE_LOG says: quiet, notice, info; anything else that is set means notice.
[[nodiscard]] inline LogLevel log_level_of_environment() {
  const char* text = std::getenv("REPRISE_LOG");
  if (text == nullptr) return LogLevel::quiet;
  const std::string_view level = text;
  return level == "info"                     ? LogLevel::info
         : level == "quiet" || level.empty() ? LogLevel::quiet
                                             : LogLevel::notice;
}

class Log {
 public:
  using Sink = std::function<void(LogLevel, const std::string&)>;

  explicit Log(std::string name = {}, LogLevel level = log_level_of_environment(), Sink sink = {})
      : name_(std::move(name)), level_(level), sink_(std::move(sink)) {}

  void notice(const std::string& text) const { say(LogLevel::notice, text); }
  void info(const std::string& text) const { say(LogLevel::info, text); }
  [[nodiscard]] bool says(LogLevel level) const { return level <= level_; }

 private:
  void say(LogLevel level, const std::string& text) const {
    if (!says(level)) return;
    if (sink_) sink_(level, text);
    else std::cerr << "reprise: " << name_ << ": " << text << '\n';
  }

  std::string name_;
  LogLevel level_;
  Sink sink_;
};

}  // namespace reprise::base

namespace reprise {
using base::LogLevel;
}  // namespace reprise
