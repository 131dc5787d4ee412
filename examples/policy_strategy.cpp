// A strategy of one's own: the largest activations are computed again, each right before its last
// use, as long as that lowers the peak.

#include <algorithm>
#include <iostream>
#include <vector>

#include <reprise/graph/json.hpp>
#include <reprise/reprise.hpp>

struct LargestAgain {
  std::string_view name() const { return "largest-again"; }

  reprise::Schedule schedule(const reprise::StepGraph& graph,
                             const reprise::PlanRequest& request) const {
    using namespace reprise;
    const ScheduleFacts facts{graph};
    std::vector<StorageId> storages;
    for (std::size_t s = 0; s < graph.storage_count(); ++s)
      if (const StorageId id{s};
          !graph.storage(id).persistent && graph.value(graph.storage(id).owner).producer.valid())
        storages.push_back(id);
    std::sort(storages.begin(), storages.end(), [&](StorageId a, StorageId b) {
      return graph.storage(a).bytes > graph.storage(b).bytes;
    });
    Schedule best = own_order(graph);
    Bytes peak = LiveSchedule{facts, best}.peak();
    for (const StorageId s : storages) {
      if (peak <= request.budget) break;
      const ValueId owner = graph.storage(s).owner;
      LiveSchedule tried{facts, best};
      const auto readers = tried.readers(owner.index);
      if (readers.empty()) continue;
      tried.insert(graph.value(owner).producer, readers.back());
      if (!tried.valid() || tried.peak() >= peak) continue;
      best = tried.schedule();
      peak = tried.peak();
    }
    return best;
  }
};

int main(int argc, char** argv) {
  if (argc != 2) return std::cerr << "usage: policy_strategy GRAPH.json\n", 2;
  using namespace reprise;
  const StepGraph graph = read_graph_file(argv[1]);
  const Bytes own = analyse_memory(graph).peak;
  const Plan plan =
      Planner<MeasuredCost, LargestAgain>{}.plan(graph, {.budget = Bytes{own.count * 8 / 10}});
  std::cout << "own peak " << format_bytes(own) << ", planned " << format_bytes(plan.peak)
            << ", budget " << format_bytes(plan.budget) << '\n';
  return plan.peak <= own ? 0 : 1;
}
