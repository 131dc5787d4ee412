#include <reprise/plan/plan_file.hpp>

#include <filesystem>
#include <fstream>

#include <reprise_test/random_graphs.hpp>
#include <reprise_test/temp_dir.hpp>
#include <reprise_test/toy.hpp>

using namespace reprise::testing;

namespace {

Bytes share(const StepGraph& graph, double percent) {
  return Size{.bytes = {}, .percent = percent, .relative = true}.resolve(
      simulate(graph, own_order(graph)).peak);
}

}  // namespace

TEST_CASE("a plan is written as one line of JSON and read back") {
  const StepGraph graph = toy_graph();
  Plan plan;
  plan.schedule = toy_schedule();
  plan.budget = 20548_B;
  plan.peak = 20548_B;
  plan.time = {319};
  plan.baseline_peak = 28740_B;
  plan.baseline_time = {188.5};
  plan.strategy = "anneal";
  plan.seconds = 0.5;
  const std::string text = plan_text(graph, plan);
  CHECK(
      text ==
      R"({"format":"reprise.plan","version":1,"graph":"toy","graph_hash":")" + graph_hash(graph) +
          R"(","budget_bytes":20548,"peak_bytes":20548,"time_us":319.0,"baseline_peak_bytes":28740,)"
          R"("baseline_time_us":188.5,"strategy":"anneal","seed":)" +
          std::to_string(plan.seed) + R"(,"plan_seconds":0.5,"schedule":[0,1,2,3,4,0,1,2,5]})" +
          "\n");
  const PlanFile file = parse_plan(text, graph);
  CHECK(file.schedule == plan.schedule);
  CHECK(file.budget == 20548.0);
  CHECK(false_claims(graph, file).empty());
}

TEST_CASE("what is no node id in a schedule is named by its step") {
  const auto [step, message] = GENERATE(table<std::string, std::string>({
      {"1.5", "bad format: schedule: step 1: not a node id"},
      {"true", "bad format: schedule: step 1: not a node id"},
      {"[2]", "bad format: schedule: step 1: not a node id"},
      {"18446744073709551615", "bad format: schedule: step 1: not a node id"},
      {R"({"out": 3})", "bad schedule: schedule: step 1: transfers are not part of version 1"},
  }));
  CAPTURE(step);
  const std::string text = R"({"format":"reprise.plan","version":1,"schedule":[0,)" + step + ",1]}";
  CHECK(refusal([&] { (void)parse_plan(text, toy_graph()); }) == message);
}

TEST_CASE("a plan file says what it was made for and is believed only where it is true") {
  const StepGraph graph = chain_step(12);
  Plan plan = Planner{}.plan(graph, {.budget = share(graph, 70)});
  const PlanFile file = parse_plan(plan_text(graph, plan), graph);
  CHECK(file.schedule == plan.schedule);
  CHECK(false_claims(graph, file).empty());
  plan.peak += 1_B;
  CHECK(false_claims(graph, parse_plan(plan_text(graph, plan), graph))
            .front()
            .rfind("peak_bytes", 0) == 0);
  plan.peak -= 1_B;
  StepGraph slower = graph;
  slower.set_time(NodeId{0}, {1000});
  CHECK(false_claims(slower, file).front().rfind("time_us", 0) == 0);
  const std::vector<std::int64_t> sizes(12, 101);
  CHECK(false_claims(chain_step(12, {}, sizes), file).front().rfind("graph_hash", 0) == 0);
  CHECK_THROWS_AS(parse_plan("{", graph), Error);
  CHECK_THROWS_AS(parse_plan(R"({"format":"reprise.plan","version":2,"schedule":[]})", graph),
                  Error);
  CHECK_THROWS_AS(parse_plan(R"({"format":"reprise.plan","version":1,"schedule":[99]})", graph),
                  Error);
  CHECK_THROWS_AS(parse_plan(R"({"format":"reprise.plan","version":1,"schedule":[1.5]})", graph),
                  Error);
}

TEST_CASE("a file that is a link is written through") {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / "reprise-plan-link";
  std::filesystem::create_directories(folder);
  const auto target = folder / "target", link = folder / "link";
  std::filesystem::remove(link);
  write_file_atomically(target.string(), "old");
  std::filesystem::create_symlink(target, link);
  write_file_atomically(link.string(), "new");
  CHECK(std::filesystem::is_symlink(link));
  std::ifstream in{target};
  std::string text;
  in >> text;
  CHECK(text == "new");
  CHECK_THROWS_AS(write_file_atomically("/dev/full", "x"), Error);
  CHECK_FALSE(std::filesystem::is_regular_file("/dev/full"));
  std::filesystem::remove_all(folder);
}
