#include "support/cli.hpp"

#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include <reprise_test/catch.hpp>
#include <reprise_test/temp_dir.hpp>

#include "support/output.hpp"

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
  const auto refusal = [](const std::vector<const char*>& arguments) {
    return Program{}.refusal(arguments);
  };
  CHECK(refusal({"g", "--step", "7"}) == "unknown flag --step; see --help");
  CHECK(refusal({"g", "--steps"}) == "--steps needs a value: N; see --help");
  CHECK(refusal({"g", "--steps", ""}) == "--steps needs a value: N; see --help");
  CHECK(refusal({"g", "--steps="}) == "--steps needs a value: N; see --help");
  CHECK(refusal({"g", "--steps", "7x"}) == "--steps 7x: not a number that fits; see --help");
  CHECK(refusal({"g", "--steps", "99999999999999999999"}) ==
        "--steps 99999999999999999999: not a number that fits; see --help");
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

TEST_CASE("what a library says about too large a tensor is said plainly") {
  CHECK(examples::plainly(
            "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate "
            "memory: you tried to allocate "
            "800000000064 bytes. Error code 12 (Cannot allocate memory)\nframe #0: …") ==
        "there is not enough memory: 800000000064 bytes were asked for at once; take a smaller "
        "batch");
  CHECK(examples::plainly("Storage size calculation overflowed with sizes=[9223372036854775807]") ==
        "a tensor of that size cannot be addressed; take a smaller batch");
  CHECK(examples::plainly("first\nsecond") == "first");
}

TEST_CASE("what cannot be written is found out before a run, and leaves nothing behind") {
  const reprise_test::TempDir dir;
  const auto refusal = [&](const auto& check) {
    try {
      check();
    } catch (const reprise::Error& error) {
      return std::string(error.what());
    }
    return std::string("none");
  };
  examples::check_writable("--json", dir / "new.json");
  CHECK_FALSE(std::filesystem::exists(dir / "new.json"));
  std::ofstream{dir / "old.json"} << "kept";
  examples::check_writable("--json", dir / "old.json");
  CHECK(std::filesystem::file_size(dir / "old.json") == 4);
  const std::string lost = dir / "none/x.json";
  CHECK(refusal([&] { examples::check_writable("--json", lost); }) ==
        "--json " + lost + ": cannot be written");
  CHECK(refusal([&] {
          examples::check_writable("--json", dir / ".");
        }).ends_with(": is a folder, and a file is wanted"));
  examples::make_folder("--out", dir / "a/b");
  CHECK(std::filesystem::is_empty(dir / "a/b"));
  CHECK(refusal([&] {
          examples::make_folder("--out", dir / "old.json");
        }).ends_with("old.json: cannot be made: Not a directory"));
}
