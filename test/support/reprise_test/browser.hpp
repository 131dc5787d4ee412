#pragma once
// A headless Chromium, where there is one: runs a page with its scripts and gives back what has
// become of it.

#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>

#include <reprise_test/temp_dir.hpp>

namespace reprise_test {

/// The name under which one is installed; none where there is none.
[[nodiscard]] inline std::optional<std::string> find_browser() {
  for (const char* name : {"chromium", "chromium-browser", "google-chrome"})
    if (std::system(("command -v " + std::string(name) + " > /dev/null 2>&1").c_str()) == 0)
      return name;
  return std::nullopt;
}

/// The page's document after its scripts have run, as HTML.
[[nodiscard]] inline std::string run_page(const std::string& browser, const std::string& page) {
  const TempDir dir;
  std::ofstream{dir / "page.html"} << page;
  const std::string command = "timeout 120 " + browser +
                              " --headless=new --no-sandbox --disable-gpu --window-size=1280,900" +
                              " --user-data-dir=" + (dir / "profile") +
                              " --virtual-time-budget=5000 --dump-dom file://" +
                              (dir / "page.html") + " 2> /dev/null";
  std::FILE* pipe = popen(command.c_str(), "r");
  std::string text;
  std::array<char, 4096> block;
  while (const std::size_t size = std::fread(block.data(), 1, block.size(), pipe))
    text.append(block.data(), size);
  pclose(pipe);
  return text;
}

}  // namespace reprise_test
