#include "support/cli.hpp"

#include <sstream>
#include <stdexcept>

#include <reprise_test/catch.hpp>

using examples::Flags;

namespace {

struct Program {
  std::int64_t steps = 5;
  std::string config = "tiny";
  std::string graph{};
  reprise::Size budget{};
  bool compare = false;
  Flags flags{"program", "Does something."};

  Program() {
    flags.add("--steps", "N", "how many steps", steps, 1, 100);
    flags.choose("--config", {"tiny", "full"}, "size of the model", config);
    flags.add("--budget", "SIZE", "bound on memory", budget);
    flags.add("--compare", "run eager beside replay", compare);
    flags.positional("GRAPH", "a graph file", graph);
  }

  bool parse(std::vector<const char*> arguments) {
    arguments.insert(arguments.begin(), "program");
    return flags.parse(static_cast<int>(arguments.size()), arguments.data());
  }
  std::string refusal(const std::vector<const char*>& arguments) {
    try {
      (void)parse(arguments);
    } catch (const reprise::Error& error) {
      return error.what();
    }
    return "accepted";
  }
};

}  // namespace

TEST_CASE("a flag's value may follow it or stand behind an equals sign") {
  Program program;
  CHECK(program.parse({"--steps", "7", "g.json", "--config=full", "--compare", "--budget", "50%"}));
  CHECK(program.steps == 7);
  CHECK(program.config == "full");
  CHECK(program.graph == "g.json");
  CHECK(program.compare);
  CHECK(program.budget.relative);
}

TEST_CASE("what is wrong with a flag is said in one line") {
  const auto refusal = [](const std::vector<const char*>& arguments) { return Program{}.refusal(arguments); };
  CHECK(refusal({"g", "--step", "7"}) == "unknown flag --step; see --help");
  CHECK(refusal({"g", "--steps"}) == "--steps needs a value: N; see --help");
  CHECK(refusal({"g", "--steps", "7x"}) == "--steps 7x: not a number that fits; see --help");
  CHECK(refusal({"g", "--steps", "99999999999999999999"}) == "--steps 99999999999999999999: not a number that fits; see --help");
  CHECK(refusal({"g", "--steps", "0"}) == "--steps 0: must be at least 1; see --help");
  CHECK(refusal({"g", "--steps", "101"}) == "--steps 101: must be at most 100; see --help");
  CHECK(refusal({"g", "--config", "big"}) == "--config big: must be one of tiny|full; see --help");
  CHECK(refusal({"g", "--compare=1"}) == "--compare takes no value; see --help");
  CHECK(refusal({"g", "h"}) == "unexpected argument 'h'; see --help");
  CHECK(refusal({}) == "GRAPH is missing: a graph file; see --help");
}

TEST_CASE("help lists every flag with its default") {
  std::ostringstream text;
  Program{}.flags.print_help(text);
  CHECK(text.str() ==
        "Does something.\n"
        "\n"
        "Usage: program GRAPH [flags]\n"
        "\n"
        "  GRAPH               a graph file\n"
        "  --steps N           how many steps (5)\n"
        "  --config tiny|full  size of the model (tiny)\n"
        "  --budget SIZE       bound on memory\n"
        "  --compare           run eager beside replay\n"
        "  --help              this text\n"
        "\n"
        "Exit codes: 0 done; 1 a check failed; 2 bad flag or input; 3 budget not reachable.\n");
}

TEST_CASE("an exit code says what kind of thing went wrong") {
  const auto code = [](reprise::Errc error) {
    return examples::run("program", [&]() -> int { throw reprise::Error(error, "what"); });
  };
  CHECK(examples::run("program", [] { return 1; }) == 1);
  CHECK(code(reprise::Errc::bad_schedule) == 1);
  CHECK(code(reprise::Errc::bad_argument) == 2);
  CHECK(code(reprise::Errc::bad_format) == 2);
  CHECK(code(reprise::Errc::io) == 2);
  CHECK(code(reprise::Errc::budget_unreachable) == 3);
  CHECK(examples::run("program", []() -> int { throw std::runtime_error("first\nsecond"); }) == 2);
}
