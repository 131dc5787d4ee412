#pragma once
// Whether files can be written where a flag says, found out before the run that they are for.
//
//   examples::check_writable("--json", "results/run.json");    // throws where there is no folder `results`; leaves nothing behind
//   examples::make_folder("--out", "pictures");                // makes it where it is not there

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include <reprise/base/error.hpp>

namespace examples {

/// Throws Errc::io where a file cannot be written there. What is there already stays as it is.
inline void check_writable(const std::string& flag, const std::filesystem::path& path) {
  std::error_code ignored;
  const bool was_there = std::filesystem::exists(path, ignored);
  if (std::filesystem::is_directory(path, ignored))
    throw reprise::Error(reprise::Errc::io,
                         flag + " " + path.string() + ": is a folder, and a file is wanted");
  if (!std::ofstream(path, std::ios::app))
    throw reprise::Error(reprise::Errc::io, flag + " " + path.string() + ": cannot be written");
  if (!was_there) std::filesystem::remove(path, ignored);
}

/// Throws Errc::io where the folder cannot be made, or nothing can be written into it.
inline void make_folder(const std::string& flag, const std::filesystem::path& path) {
  std::error_code failed;
  std::filesystem::create_directories(path, failed);
  if (!failed && !std::filesystem::is_directory(path, failed))
    failed = std::make_error_code(std::errc::not_a_directory);
  if (failed)
    throw reprise::Error(reprise::Errc::io,
                         flag + " " + path.string() + ": cannot be made: " + failed.message());
  const std::filesystem::path probe = path / ".reprise-can-write-here";
  if (!std::ofstream(probe))
    throw reprise::Error(reprise::Errc::io,
                         flag + " " + path.string() + ": nothing can be written there");
  std::filesystem::remove(probe, failed);
}

}  // namespace examples
