#pragma once
// RepeatedBlocks finds nodes that do the same in different blocks of a repetitive graph: a decision
// for one of them is worth trying for all.
//
//   x ─conv─ relu ─conv─ relu ─conv─ relu ─loss         conv: {0, 2, 4}, relu: {1, 3, 5}, loss: {6}
//                                                       loss, backward, …: classes of one node, or mirrored classes
//
// Two nodes are twins if op, phase, sizes and workspace are equal. The same must hold for the
// producers of their inputs and the readers of their outputs, a few edges around (colour
// refinement). Measured times are left out, because they always differ. The first and the last
// blocks have other neighbours, so they are not in the class, and are decided on their own.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include <reprise/graph/step_graph.hpp>

namespace reprise::planning {

class RepeatedBlocks {
 public:
  explicit RepeatedBlocks(const StepGraph& graph, int steps = 2)
      : graph_(graph), colour_(graph.node_count()), place_(graph.node_count()) {
    for (std::uint32_t n = 0; n < colour_.size(); ++n) colour_[n] = own_colour(n);
    for (int k = 0; k < steps; ++k) refine();
    std::unordered_map<std::uint64_t, std::uint32_t> classes;
    for (std::uint32_t n = 0; n < colour_.size(); ++n) {
      const auto [it, fresh] =
          classes.emplace(colour_[n], static_cast<std::uint32_t>(members_.size()));
      if (fresh) members_.emplace_back();
      class_.push_back(it->second);
      place_[n] = static_cast<std::uint32_t>(members_[it->second].size());
      members_[it->second].push_back(n);
    }
  }

  /// The node and its twins, in the graph's order.
  [[nodiscard]] std::span<const std::uint32_t> twins(std::uint32_t n) const {
    return members_[class_[n]];
  }
  /// The node's index among its twins.
  [[nodiscard]] std::uint32_t place(std::uint32_t n) const { return place_[n]; }

  /// The node that is to twin number t of a what `b` is to `a`: in the same direction if both
  /// classes run in the same direction, mirrored if one class is of the backward pass. None
  /// (0xffffffff) without such a twin.
  [[nodiscard]] std::uint32_t counterpart(std::uint32_t a, std::uint32_t b, std::uint32_t t) const {
    const auto of_b = twins(b);
    const bool mirrored = graph_.nodes()[a].phase != graph_.nodes()[b].phase;
    const std::int64_t away = std::int64_t{t} - place(a);
    const std::int64_t at = std::int64_t{place(b)} + (mirrored ? -away : away);
    return at < 0 || at >= static_cast<std::int64_t>(of_b.size())
               ? 0xffffffffu
               : of_b[static_cast<std::size_t>(at)];
  }

 private:
  static void mix(std::uint64_t& h, std::uint64_t x) {
    h = (h ^ x) * 0x9e3779b97f4a7c15u, h ^= h >> 29;
  }

  [[nodiscard]] std::uint64_t own_colour(std::uint32_t n) const {
    const Node& node = graph_.nodes()[n];
    std::uint64_t h = std::hash<std::string>{}(node.op);
    mix(h, static_cast<std::uint64_t>(node.phase));
    mix(h, static_cast<std::uint64_t>(node.workspace.count));
    for (ValueId v : graph_.outputs(NodeId{n}))
      mix(h, static_cast<std::uint64_t>(graph_.value(v).bytes.count) * 2 + 1);
    return h;
  }

  void refine() {
    std::vector<std::uint64_t> next(colour_.size());
    for (std::uint32_t n = 0; n < colour_.size(); ++n) {
      std::uint64_t h = colour_[n];
      for (ValueId v : graph_.inputs(NodeId{n}))
        mix(h, graph_.value(v).producer.valid()
                   ? colour_[graph_.value(v).producer.index]
                   : static_cast<std::uint64_t>(graph_.value(v).bytes.count));
      for (ValueId v : graph_.outputs(NodeId{n}))
        for (NodeId r : graph_.readers(v)) mix(h, colour_[r.index]);
      next[n] = h;
    }
    colour_ = std::move(next);
  }

  const StepGraph& graph_;
  std::vector<std::uint64_t> colour_;
  std::vector<std::uint32_t> class_, place_;
  std::vector<std::vector<std::uint32_t>> members_;
};

}  // namespace reprise::planning
