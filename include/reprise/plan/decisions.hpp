#pragma once
// decisions() lists what a schedule decides for each activation: kept or recomputed, and the cost.
//
//   activation,decision,bytes,cost_us,runs
//   h,recompute,8192,120.5,2
//   wide,keep,16384,0,1

#include <algorithm>
#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <reprise/graph/schedule.hpp>

namespace reprise::planning {

enum class Decision : std::uint8_t { keep, recompute, offload };

[[nodiscard]] constexpr std::string_view to_string(Decision decision) {
  constexpr std::string_view names[] = {"keep", "recompute", "offload"};
  return names[static_cast<std::size_t>(decision)];
}

struct ActivationDecision {
  StorageId storage{};
  Decision decision = Decision::keep;
  Bytes bytes{};
  Microseconds cost{};     ///< extra time of its producer
  std::uint32_t runs = 1;  ///< of its producer
};

/// One decision for each storage that a node allocates, the most expensive recomputation first,
/// then by bytes.
[[nodiscard]] inline std::vector<ActivationDecision> decisions(const StepGraph& graph,
                                                               std::span<const NodeId> schedule) {
  const auto runs = run_counts(graph, schedule);
  std::vector<ActivationDecision> list;
  for (StorageId s : graph.storage_ids()) {
    const Storage& storage = graph.storage(s);
    const NodeId maker = graph.value(storage.owner).producer;
    if (storage.persistent || !maker.valid()) continue;
    const std::uint32_t count = runs[maker.index];
    const bool again = count > 1;
    list.push_back({s,
                    again ? Decision::recompute : Decision::keep,
                    storage.bytes,
                    {again ? (count - 1) * graph.node(maker).time.count : 0},
                    count});
  }
  std::ranges::stable_sort(list, std::greater{}, [](const ActivationDecision& d) {
    return std::pair{d.cost, d.bytes};
  });
  return list;
}

/// The name of the storage's owner; the value's number if it has no name.
[[nodiscard]] inline std::string activation_name(const StepGraph& graph, StorageId s) {
  const Value& v = graph.value(graph.storage(s).owner);
  return v.name.empty() ? "value " + std::to_string(v.id) : v.name;
}

inline void write_decisions_csv(std::ostream& out, const StepGraph& graph,
                                std::span<const ActivationDecision> list) {
  const auto quoted = [](const std::string& text) {
    if (text.find_first_of(",\"\n") == std::string::npos) return text;
    std::string result = "\"";
    for (char c : text) result += c == '"' ? std::string("\"\"") : std::string(1, c);
    return result + "\"";
  };
  out << "activation,decision,bytes,cost_us,runs\n";
  for (const ActivationDecision& d : list)
    out << quoted(activation_name(graph, d.storage)) << ',' << to_string(d.decision) << ','
        << d.bytes.count << ',' << d.cost.count << ',' << d.runs << '\n';
}

}  // namespace reprise::planning

namespace reprise {
using planning::Decision;
using planning::decisions;
using planning::to_string;
using planning::write_decisions_csv;
}  // namespace reprise
