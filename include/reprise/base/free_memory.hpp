#pragma once
// free_memory() is the number of bytes that the process can still allocate before the system
// refuses or kills it.
//
//   free_memory()       12 GiB: the smaller of the machine's free memory (MemAvailable) and the control group's
//
// Linux only: 0 on other systems, and if neither number can be read.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include <reprise/base/units.hpp>

namespace reprise::base {

/// The number in a file of one line; empty for "max", or if the file does not exist.
inline std::optional<Bytes> number_in(const std::filesystem::path& file) {
  std::int64_t bytes = 0;
  std::ifstream in(file);
  return in >> bytes ? std::optional(Bytes{bytes}) : std::nullopt;
}

inline std::optional<Bytes> available_on_machine(const std::filesystem::path& meminfo) {
  std::ifstream in(meminfo);
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("MemAvailable:")) return Bytes{std::stoll(line.substr(13)) * 1024};
  return std::nullopt;
}

[[nodiscard]] inline Bytes free_memory(
    const std::filesystem::path& meminfo = "/proc/meminfo",
    const std::filesystem::path& control_group = "/sys/fs/cgroup") {
  std::optional<Bytes> left = available_on_machine(meminfo);
  const auto most = number_in(control_group / "memory.max"),
             now = number_in(control_group / "memory.current");
  if (most && now) left = std::min(left.value_or(*most), std::max(*most - *now, Bytes{0}));
  return left.value_or(Bytes{0});
}

}  // namespace reprise::base

namespace reprise {
using base::free_memory;
}  // namespace reprise
