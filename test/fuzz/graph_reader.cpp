// Throws mutated files at the reader of reprise.graph: whatever comes, it returns a graph or one
// Error, and a graph that it returns is written and read back as the same graph. Deterministic: the
// seed of a failing file is printed, and REPRISE_FUZZ_SEED and REPRISE_FUZZ_FILES start elsewhere
// and go on longer.

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <iterator>
#include <random>
#include <string>
#include <utility>

#include <reprise/graph/json.hpp>
#include <reprise_test/catch.hpp>
#include <reprise_test/toy_graph.hpp>

using namespace reprise;
using namespace reprise::base;

namespace {

using Random = std::mt19937_64;

std::size_t below(Random& random, std::size_t n) { return n == 0 ? 0 : random() % n; }

std::uint64_t setting(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// Every member of the format, and some that are not.
const std::string all_features =
    R"({"format": "reprise.graph", "version": 1, "name": "all \u00b5", "tool": {"version": [1, {"x": null}]}, "values": [
  {"id": -3, "name": "p", "bytes": 16, "role": "parameter", "persistent": true, "shape": [2, 2], "dtype": "float"},
  {"id": 50, "bytes": 16, "role": "input", "initial": true, "alias_of": null},
  {"id": 7, "name": "a", "bytes": 16, "role": "activation", "persistent": false},
  {"id": 8, "name": "v", "bytes": 0, "role": "activation", "alias_of": 7},
  {"id": 9, "name": "w", "bytes": 0, "role": "gradient", "overwrites": 8}
], "nodes": [
  {"id": 100, "name": "f", "op": "make", "time_us": 0.1, "workspace_bytes": 5, "inputs": [50, 50], "outputs": [7, 8],
   "updates": [-3], "attributes": [true]},
  {"id": 99, "phase": "backward", "time_us": 1e3, "recomputable": false, "forward_node": 100, "inputs": [8], "outputs": [9, -3]}
], "outputs": [9]})";

const std::string pieces[] = {"{",
                              "}",
                              "[",
                              "]",
                              ",",
                              ":",
                              "\"",
                              "null",
                              "true",
                              "false",
                              "0",
                              "-1",
                              "1",
                              "2",
                              "3.0",
                              "1e400",
                              "1e-400",
                              "-0",
                              "9007199254740993",
                              "9223372036854775808",
                              "18446744073709551616",
                              "NaN",
                              "\"id\"",
                              "\"bytes\"",
                              "\"alias_of\": 3",
                              "\"overwrites\": 2",
                              "\"persistent\": true,",
                              "\"initial\": true,",
                              "\"updates\": [0],",
                              "\"phase\": \"backward\",",
                              "\"\\u0000\"",
                              "\"\\ud800\"",
                              "\xff",
                              "\xc3\xa9",
                              "\\",
                              "\n",
                              std::string(1, '\0'),
                              "[[[[[[[[",
                              "{\"a\":",
                              "//",
                              "\"extra\": [1, {}],"};

// Start and length of the number, word or string around a random place: changes there are more
// often still JSON.
std::pair<std::size_t, std::size_t> token(Random& random, const std::string& text) {
  std::size_t begin = below(random, text.size());
  const auto part = [&](std::size_t i) {
    return std::isalnum(static_cast<unsigned char>(text[i])) || text[i] == '.' || text[i] == '_' ||
           text[i] == '-';
  };
  std::size_t end = begin;
  while (begin > 0 && part(begin - 1)) --begin;
  while (end < text.size() && part(end)) ++end;
  return {begin, end - begin};
}

void mutate(Random& random, std::string& text) {
  const std::size_t at = below(random, text.size() + 1);
  const std::size_t length = below(random, std::min<std::size_t>(text.size() - at + 1, 40));
  switch (below(random, 14)) {
    case 0: text.erase(at, length); break;
    case 1: text.insert(at, pieces[below(random, std::size(pieces))]); break;
    case 2: text.replace(at, length, pieces[below(random, std::size(pieces))]); break;
    case 3: text.insert(below(random, text.size() + 1), text.substr(at, length)); break;
    case 4:
      if (at < text.size()) text[at] = static_cast<char>(random());
      break;
    case 5: text.resize(at); break;
    case 6:
    case 7:
    case 8:
    case 9:
    case 10: {
      const auto [begin, size] = token(random, text);
      text.replace(begin, size, std::to_string(static_cast<int>(below(random, 12)) - 1));
      break;
    }
    default: {
      const auto [from, size] = token(random, text);
      const std::string copy = text.substr(from, size);
      const auto [to, old_size] = token(random, text);
      text.replace(to, old_size, copy);
    }
  }
}

// True where the file was accepted. Throws what the reader must not throw.
bool survive(const std::string& text) {
  StepGraph graph;
  try {
    graph = parse_graph(text);
  } catch (const Error& e) {
    REQUIRE(std::string_view(e.what()).size() > 5);
    REQUIRE(std::string_view(e.what()).size() < 1000);
    REQUIRE(is_utf8(e.what()));
    return false;
  }
  const std::string again = graph_text(graph);
  REQUIRE(parse_graph(again) == graph);
  REQUIRE(graph_text(parse_graph(again)) == again);
  return true;
}

}  // namespace

TEST_CASE("twenty thousand mutated graph files give a graph or one clear error") {
  const std::uint64_t first = setting("REPRISE_FUZZ_SEED", 1),
                      files = setting("REPRISE_FUZZ_FILES", 20'000);
  std::uint64_t accepted = 0;
  for (std::uint64_t seed = first; seed < first + files; ++seed) {
    Random random{seed};
    std::string text =
        below(random, 2) == 0 ? std::string(reprise_test::toy_document) : all_features;
    for (std::size_t i = below(random, 3) + 1; i > 0; --i) mutate(random, text);
    INFO("REPRISE_FUZZ_SEED=" << seed << " REPRISE_FUZZ_FILES=1\n" << text);
    if (survive(text)) ++accepted;
  }
  INFO("seeds " << first << " to " << first + files - 1 << ", accepted " << accepted << " of "
                << files);
  if (files >= 1000) CHECK(accepted > files / 20);  // or the mutations only test the parser
  if (files >= 1000) CHECK(accepted < files);
}
