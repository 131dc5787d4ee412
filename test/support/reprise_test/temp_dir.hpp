#pragma once
// A folder of one's own, gone with its contents at the end of the block.

#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>

namespace reprise_test {

class TempDir {
 public:
  TempDir() {
    path_ = (std::filesystem::temp_directory_path() / "reprise-XXXXXX").string();
    if (mkdtemp(path_.data()) == nullptr)
      throw std::runtime_error("no temporary folder could be made");
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  [[nodiscard]] std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace reprise_test
