#pragma once
// A file that holds what does not fit into memory. It has no name: it is unlinked as soon as it is
// open, so that nothing is left behind however the process ends.
//
//   SpillFile file{"/var/tmp"};
//   SpillFile::Place place = file.write(data, 4096);      // 4096 bytes at offset 0
//   file.read(place, data);
//   file.release(place);                                  // the next write of at most 4096 bytes may go there
//
// Written and read through a small buffer of the kernel's (pwrite, pread): a mapping would count
// against an address-space limit.

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include <reprise/base/error.hpp>
#include <reprise/base/units.hpp>

namespace reprise::cpu {

class SpillFile {
 public:
  struct Place {
    std::int64_t offset = 0;
    std::int64_t bytes = 0;  ///< as written
    std::int64_t room = 0;   ///< what the place can hold
  };

  /// `folder` empty: the system's folder for temporary files.
  explicit SpillFile(std::filesystem::path folder = {})
      : folder_(folder.empty() ? std::filesystem::temp_directory_path() : std::move(folder)) {}
  ~SpillFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  SpillFile(const SpillFile&) = delete;
  SpillFile& operator=(const SpillFile&) = delete;

  /// Throws Errc::io where the disk is full; nothing is then kept.
  [[nodiscard]] Place write(const void* data, std::size_t bytes) {
    const Place place = take(static_cast<std::int64_t>(bytes));
    const auto* from = static_cast<const char*>(data);
    for (std::size_t done = 0; done < bytes;) {
      const ssize_t n = ::pwrite(descriptor_, from + done, bytes - done,
                                 static_cast<off_t>(place.offset) + static_cast<off_t>(done));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) {
        const int why = n == 0 ? ENOSPC : errno;
        release(place);
        throw fail("cannot write " + format_bytes({place.bytes}) + " (the file holds " +
                       format_bytes(held()) + " already)",
                   why);
      }
      done += static_cast<std::size_t>(n);
    }
    return place;
  }

  void read(const Place& place, void* data) const {
    auto* to = static_cast<char*>(data);
    const auto bytes = static_cast<std::size_t>(place.bytes);
    for (std::size_t done = 0; done < bytes;) {
      const ssize_t n = ::pread(descriptor_, to + done, bytes - done,
                                static_cast<off_t>(place.offset) + static_cast<off_t>(done));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0)
        throw fail("cannot read back " + format_bytes({place.bytes}), n == 0 ? EIO : errno);
      done += static_cast<std::size_t>(n);
    }
  }

  /// Gives the place back. What was written there may be overwritten.
  void release(const Place& place) {
    const std::lock_guard lock(guard_);
    free_.emplace(place.room, place.offset);
    held_ -= place.bytes;
  }

  /// What is written and not released.
  [[nodiscard]] Bytes held() const {
    const std::lock_guard lock(guard_);
    return {held_};
  }
  /// How large the file has become.
  [[nodiscard]] Bytes size() const {
    const std::lock_guard lock(guard_);
    return {end_};
  }

 private:
  void open() {
    if (descriptor_ >= 0) return;
    std::string name = (folder_ / "reprise-spill-XXXXXX").string();
    // no process that user code starts has it open too
    descriptor_ = ::mkostemp(name.data(), O_CLOEXEC);
    if (descriptor_ < 0) throw fail("cannot make a file there", errno);
    ::unlink(name.c_str());
  }

  // The smallest free place that is large enough, else the end of the file.
  Place take(std::int64_t bytes) {
    const std::lock_guard lock(guard_);
    open();
    held_ += bytes;
    const auto it = free_.lower_bound(bytes);
    if (it != free_.end()) {
      const Place place{it->second, bytes, it->first};
      free_.erase(it);
      return place;
    }
    const Place place{end_, bytes, bytes};
    end_ += bytes;
    return place;
  }

  [[nodiscard]] Error fail(const std::string& what, int why) const {
    return Error(Errc::io, "moving tensors out to '" + folder_.string() + "': " + what + ": " +
                               std::strerror(why) +
                               "; free some room there or name another folder");
  }

  std::filesystem::path folder_;
  mutable std::mutex guard_;  // a block may be read back on any thread (protected_blocks.hpp)
  int descriptor_ = -1;
  std::int64_t end_ = 0, held_ = 0;
  std::multimap<std::int64_t, std::int64_t> free_;  // room -> offset
};

}  // namespace reprise::cpu
