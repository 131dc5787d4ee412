#pragma once
// extract() finds what a schedule recomputes, and why: for every recomputed value that a first run
// reads, the subgraph that is recomputed for it.
//
//   schedule    0 norm  1 relu  2 flat  3 wide  4 sum  5 norm  6 relu  7 flat  8 grad        the toy of the plan format
//
//   extract(graph, schedule).recomputations[0]
//   {.value = h.flat, .occurrences = {5, 6, 7}, .nodes = {norm, relu, flat}, .sources = {x, from the start}, .uses = {8}}
//
//   write_recomputations(std::cout, graph, schedule, extraction):
//   h.flat, read by grad at 8: norm at 5, relu at 6, flat at 7, from x
//
// h and h.relu were recomputed too, but only for h.flat: they are in its subgraph and have no entry
// of their own. A source is an instance that the subgraph reads and that no recomputation made. Two
// subgraphs may share nodes. write_dot (report/extraction_dot.hpp) draws a subgraph.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include <reprise/base/error.hpp>
#include <reprise/graph/schedule.hpp>
#include <reprise/graph/simulate.hpp>
#include <reprise/graph/step_graph.hpp>
#include <reprise/rewrite/names.hpp>

namespace reprise::rewriting {

/// One instance of a value, read by an occurrence.
struct InstanceRead {
  ValueId value{};
  std::uint32_t made_by = no_index;  ///< occurrence; no_index for a value from before the step
  std::uint32_t read_by = 0;         ///< occurrence
  bool operator==(const InstanceRead&) const = default;
};

struct InstanceSource {
  ValueId value{};
  /// occurrence, a first run; no_index for a value from before the step
  std::uint32_t made_by = no_index;
  auto operator<=>(const InstanceSource&) const = default;
};

/// One recomputed instance of a value and the subgraph that makes it.
struct Recomputation {
  ValueId value{};
  /// occurrences that run for it, as indices into the schedule; the last one makes it
  std::vector<std::uint32_t> occurrences{};
  std::vector<NodeId> nodes{};            ///< in the order of `occurrences`
  std::vector<InstanceSource> sources{};  ///< instances that they read from outside, each once
  /// all instances that they read, views and in-place writes included
  std::vector<InstanceRead> reads{};
  /// first runs that read it; schedule.size() for an output of the step
  std::vector<std::uint32_t> uses{};
  bool operator==(const Recomputation&) const = default;
};

struct Extraction {
  std::vector<Recomputation> recomputations{};  ///< by the position at which the value is made
  /// recomputations whose results no first run needs
  std::vector<std::uint32_t> unneeded{};
  bool operator==(const Extraction&) const = default;
};

/// By occurrence: 0 for a node's first run, then 1, 2, …
[[nodiscard]] inline std::vector<std::uint32_t> clone_numbers(const StepGraph& graph,
                                                              std::span<const NodeId> schedule) {
  std::vector<std::uint32_t> runs(graph.node_count(), 0), clones;
  for (NodeId n : schedule) clones.push_back(runs[n.index]++);
  return clones;
}

class Extractor {
 public:
  Extractor(const StepGraph& graph, std::span<const NodeId> schedule)
      : schedule_(schedule),
        resolution_(resolve(graph, schedule)),
        clones_(clone_numbers(graph, schedule)),
        needed_(schedule.size(), false),
        visited_(schedule.size(), no_index),
        uses_(resolution_.values.size()) {}

  Extraction extract() {
    collect_uses();
    Extraction result;
    for (std::uint32_t instance = 0; instance < resolution_.values.size(); ++instance)
      if (is_recomputed(instance) && !uses_[instance].empty())
        result.recomputations.push_back(subgraph_of(instance));
    for (std::uint32_t i = 0; i < schedule_.size(); ++i)
      if (clones_[i] > 0 && !needed_[i]) result.unneeded.push_back(i);
    return result;
  }

 private:
  [[nodiscard]] bool is_recomputed(std::uint32_t instance) const {
    const std::uint32_t by = resolution_.values[instance].made_by;
    return by != no_index && clones_[by] > 0;
  }

  // Calls f for each instance that an occurrence reads and did not make itself, each once.
  template <class F>
  void for_each_read(std::uint32_t occurrence, F&& f) {
    read_.clear();
    for (std::uint32_t i : resolution_.inputs[occurrence]) read_.push_back(i);
    for (std::uint32_t i : resolution_.targets[occurrence])
      if (i != no_index && resolution_.values[i].made_by != occurrence) read_.push_back(i);
    std::sort(read_.begin(), read_.end());
    read_.erase(std::unique(read_.begin(), read_.end()), read_.end());
    for (std::uint32_t i : read_) f(i);
  }

  void collect_uses() {
    for (std::uint32_t o = 0; o < schedule_.size(); ++o)
      if (clones_[o] == 0) for_each_read(o, [&](std::uint32_t i) { uses_[i].push_back(o); });
    const auto end = static_cast<std::uint32_t>(schedule_.size());
    for (std::uint32_t i : resolution_.step_outputs)
      if (uses_[i].empty() || uses_[i].back() != end) uses_[i].push_back(end);
  }

  Recomputation subgraph_of(std::uint32_t instance) {
    Recomputation r;
    r.value = resolution_.values[instance].value;
    r.uses = uses_[instance];
    r.occurrences = {resolution_.values[instance].made_by};
    visited_[r.occurrences[0]] = instance;
    // visit() adds to the list
    for (std::size_t k = 0; k < r.occurrences.size(); ++k) visit(r.occurrences[k], instance, r);
    std::sort(r.occurrences.begin(), r.occurrences.end());
    std::ranges::stable_sort(r.reads, {}, [](const auto& read) { return read.read_by; });
    std::sort(r.sources.begin(), r.sources.end());
    r.sources.erase(std::unique(r.sources.begin(), r.sources.end()), r.sources.end());
    for (std::uint32_t o : r.occurrences) r.nodes.push_back(schedule_[o]);
    return r;
  }

  void visit(std::uint32_t occurrence, std::uint32_t instance, Recomputation& r) {
    needed_[occurrence] = true;
    for_each_read(occurrence, [&](std::uint32_t i) {
      const ValueInstance& v = resolution_.values[i];
      r.reads.push_back({v.value, v.made_by, occurrence});
      if (!is_recomputed(i)) r.sources.push_back({v.value, v.made_by});
      else if (visited_[v.made_by] != instance) {
        visited_[v.made_by] = instance;
        r.occurrences.push_back(v.made_by);
      }
    });
  }

  std::span<const NodeId> schedule_;
  Resolution resolution_;
  std::vector<std::uint32_t> clones_;  // by occurrence
  std::vector<bool> needed_;           // by occurrence
  // by occurrence: the last instance in whose subgraph it was visited
  std::vector<std::uint32_t> visited_;
  std::vector<std::vector<std::uint32_t>> uses_;  // by instance: first runs that read it
  std::vector<std::uint32_t> read_;
};

/// Throws Errc::bad_schedule with the first rule that the schedule breaks.
[[nodiscard]] inline Extraction extract(const StepGraph& graph, std::span<const NodeId> schedule) {
  return Extractor{graph, schedule}.extract();
}

// --- Printed -------------------------------------------------------------------------------------

/// "x", or "h of 5" for a value that occurrence 5 made.
[[nodiscard]] inline std::string label_of(const StepGraph& graph, const InstanceSource& source) {
  return name_of(graph.value(source.value)) +
         (source.made_by == no_index ? "" : " of " + std::to_string(source.made_by));
}

/// One line for each recomputation, and one for each recomputation without need.
inline void write_recomputations(std::ostream& out, const StepGraph& graph,
                                 std::span<const NodeId> schedule, const Extraction& extraction) {
  const auto run = [&](std::uint32_t o) {
    return name_of(graph.node(schedule[o])) + " at " + std::to_string(o);
  };
  for (const Recomputation& r : extraction.recomputations) {
    out << name_of(graph.value(r.value));
    for (std::size_t i = 0; i < r.uses.size(); ++i)
      out << (i == 0 ? ", " : " and ")
          << (r.uses[i] < schedule.size() ? "read by " + run(r.uses[i]) : "handed over");
    for (std::size_t i = 0; i < r.occurrences.size(); ++i)
      out << (i == 0 ? ": " : ", ") << run(r.occurrences[i]);
    for (std::size_t i = 0; i < r.sources.size(); ++i)
      out << (i == 0 ? ", from " : " and ") << label_of(graph, r.sources[i]);
    out << '\n';
  }
  for (std::uint32_t o : extraction.unneeded)
    out << run(o) << " runs again, and nothing needs it\n";
  if (!out.flush())
    throw Error(Errc::io, "the recomputations could not be written: the stream has failed");
}

}  // namespace reprise::rewriting

namespace reprise {
using rewriting::extract;
using rewriting::Extraction;
using rewriting::write_recomputations;
}  // namespace reprise
