// Every model of examples/models, trained eagerly and from its graph: five optimizer steps, the
// same bits.

#include "models/task.hpp"

#include <reprise_test/eager.hpp>

using namespace reprise;
using namespace reprise::testing;

namespace {

void train_both_ways(std::string_view name, OptimizerKind optimizer, int threads) {
  INFO(name << ", " << (optimizer == OptimizerKind::adam ? "Adam" : "SGD with momentum") << ", "
            << threads << " threads");
  at::set_num_threads(threads);
  const auto make = [&] {
    models::Task task = models::make(name, models::Config::tiny);
    return Subject{task.module->parameters(), task.loss, task.module->buffers(), task.module};
  };
  const models::Task data = models::make(name, models::Config::tiny);
  const TrainStepCounters counters =
      compare_with_eager(make, [&](int i) { return data.make_batch(i); }, {.optimizer = optimizer});
  CHECK(counters.captures == 1);
  CHECK(counters.replays == 4);
}

}  // namespace

TEST_CASE("each model replays like eager") {
  const int threads = at::get_num_threads();
  for (const std::string_view name : models::names())
    for (const OptimizerKind optimizer : {OptimizerKind::sgd, OptimizerKind::adam})
      for (const int count : {1, 2}) train_both_ways(name, optimizer, count);
  at::set_num_threads(threads);
}
