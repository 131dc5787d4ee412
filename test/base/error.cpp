#include <reprise/base/error.hpp>

#include <reprise_test/catch.hpp>

using namespace reprise;

TEST_CASE("every kind of error has a name, and an error keeps its kind beside its message") {
  const auto [code, name] = GENERATE(table<Errc, std::string>({
      {Errc::bad_argument, "bad argument"},
      {Errc::bad_format, "bad format"},
      {Errc::bad_graph, "bad graph"},
      {Errc::bad_schedule, "bad schedule"},
      {Errc::budget_unreachable, "budget unreachable"},
      {Errc::capture_failed, "capture failed"},
      {Errc::cancelled, "cancelled"},
      {Errc::recompute_failed, "recompute failed"},
      {Errc::io, "input/output"},
  }));
  CHECK(to_string(code) == name);
  CHECK(Error{code, "nodes: 12"}.code() == code);
  CHECK(std::string(Error{code, "nodes: 12"}.what()) == "nodes: 12");
}
