// The table, charts and JSON of examples/compare.

#include <reprise_test/catch.hpp>

#include <support/compare_report.hpp>

using namespace examples;
using namespace reprise::literals;

namespace {

std::vector<Measured> runs() {
  std::vector<Measured> all;
  all.push_back({.variant = "eager",
                 .batch = 8,
                 .peak = 1000_MiB,
                 .live = 1000_MiB,
                 .resident = 1500_MiB,
                 .seconds = {1.0, 2.0, 3.0},
                 .bits = {"a", "b"}});
  all.push_back(
      {.variant = "checkpoint", .batch = 8, .peak = 600_MiB, .seconds = {2.5}, .bits = {"a", "c"}});
  all.push_back({.variant = "TrainStep",
                 .batch = 8,
                 .peak = 500_MiB,
                 .live = 490_MiB,
                 .predicted = 490_MiB,
                 .budget = 500_MiB,
                 .seconds = {2.2},
                 .recomputed = 17,
                 .bits = {"a", "b"}});
  all.push_back({.variant = "eager", .batch = 16, .fate = Fate::out_of_memory});
  all.push_back(
      {.variant = "TrainStep", .batch = 16, .peak = 500_MiB, .seconds = {4.0}, .bits = {"d", "e"}});
  all.push_back(
      {.variant = "MemoryBudget", .batch = 16, .fate = Fate::no_plan, .why = "no schedule"});
  all.push_back({.variant = "checkpoint",
                 .batch = 16,
                 .peak = 600_MiB,
                 .seconds = {4.0},
                 .bits = {"d", "f"}});
  all.push_back({.variant = "eager", .batch = 32, .fate = Fate::failed, .why = "it said nothing"});
  compare_bits(all);
  return all;
}

bool has(const std::string& text, const std::string& part) {
  UNSCOPED_INFO(text);
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("bits are compared with eager's of the same batch size, step by step") {
  const auto all = runs();
  CHECK(all[0].equal == "yes");
  CHECK(all[1].equal == "no");
  CHECK(all[2].equal == "yes");
  CHECK(all[3].equal.empty());
  CHECK(all[4].equal == "not known");
}

TEST_CASE("where eager did not run, bits are compared with the first that did") {
  auto all = runs();
  CHECK(all[6].equal == "not as TrainStep");
  CHECK(bits_differ(all[6]));
  all[6].bits = all[4].bits;
  compare_bits(all);
  CHECK(all[6].equal == "as TrainStep");
  CHECK_FALSE(bits_differ(all[6]));
  CHECK_FALSE(bits_differ(all[4]));
}

TEST_CASE("the table shows shares of eager, and what did not run") {
  const std::string table = summary_table(runs());
  CHECK(has(table,
            "| 8 | TrainStep | 500.00 MiB | 50 % | 490.00 MiB | 490.00 MiB | 0 B | 2200 ms | 2200 "
            "to 2200 | 110 % | 17 | yes |"));
  CHECK(has(table,
            "| 8 | eager | 1000.00 MiB | 100 % | 1000.00 MiB |  | 1.46 GiB | 2000 ms | 1500 to "
            "2500 | 100 % |  | yes |"));
  CHECK(has(table, "| 16 | eager | out of memory |"));
  CHECK(has(table, "| 16 | MemoryBudget | no plan: no schedule |"));
  CHECK(has(table, "| 32 | eager | failed: it said nothing |"));
  CHECK(has(table, "| 16 | TrainStep | 500.00 MiB | not known |"));
}

TEST_CASE("a budget that was not kept is said") {
  auto all = runs();
  CHECK_FALSE(all[2].over_budget());
  all[2].budget = 499_MiB;
  CHECK(all[2].over_budget());
  CHECK(has(summary_table(all), "| 500.00 MiB, over the budget of 499.00 MiB | 50 % |"));
}

TEST_CASE("the charts label shares, the cap and what was out of memory") {
  const std::string memory = memory_chart(runs(), "toy", 800_MiB);
  CHECK(has(memory, ">50%<"));
  CHECK(has(memory, ">60%<"));
  CHECK(has(memory, "limit 800.00 MiB"));
  CHECK(has(memory, ">OOM<"));
  CHECK(has(memory, ">no plan<"));
  CHECK(has(memory, ">failed<"));
  CHECK(has(latency_chart(runs(), "toy"), ">110%<"));
}

TEST_CASE("a measurement survives its JSON") {
  for (const Measured& m : runs()) {
    const Measured again = measured_of(nlohmann::json::parse(to_json(m).dump()));
    CHECK(to_json(again) == to_json(m));
    CHECK(again.fate == m.fate);
    CHECK(again.bits == m.bits);
  }
}
