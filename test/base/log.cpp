#include <reprise/base/log.hpp>

#include <cstdlib>
#include <vector>

#include <reprise_test/catch.hpp>

using namespace reprise;
using namespace reprise::base;

TEST_CASE("a log says what its level lets through, and nothing else") {
  const auto [level, heard] = GENERATE(table<LogLevel, std::vector<std::string>>({
      {LogLevel::quiet, {}},
      {LogLevel::notice, {"told"}},
      {LogLevel::info, {"told", "planned"}},
  }));
  std::vector<std::string> said;
  const Log log{"step", level, [&](LogLevel, const std::string& text) { said.push_back(text); }};
  log.notice("told");
  log.info("planned");
  CHECK(said == heard);
}

TEST_CASE("REPRISE_LOG names the level; whatever else it says means notice") {
  const auto [text, level] = GENERATE(table<std::string, LogLevel>({
      {"quiet", LogLevel::quiet},
      {"", LogLevel::quiet},
      {"notice", LogLevel::notice},
      {"1", LogLevel::notice},
      {"info", LogLevel::info},
  }));
  const char* before = std::getenv("REPRISE_LOG");
  const std::string kept = before == nullptr ? "" : before;
  setenv("REPRISE_LOG", text.c_str(), 1);
  CHECK(log_level_of_environment() == level);
  if (before == nullptr) unsetenv("REPRISE_LOG");
  else setenv("REPRISE_LOG", kept.c_str(), 1);
}
