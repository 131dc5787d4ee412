#pragma once
// write_dot() draws a recomputation for Graphviz: sources as ellipses, recomputed nodes dashed, and
// the uses that need them.
//
// ```cpp
// // dot -Tsvg again.dot > again.svg
// write_dot(std::cout, graph, schedule, extract(graph, schedule).recomputations[0]);
// ```
//
//   (x) ──x──▶ [norm#1, step 5] ──h──▶ [relu#1, step 6] ──h.relu──▶ [flat#1, step 7] ──h.flat──▶ [grad, step 8]

#include <algorithm>
#include <cstdint>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <reprise/base/error.hpp>
#include <reprise/graph/step_graph.hpp>
#include <reprise/report/dot.hpp>
#include <reprise/rewrite/extract.hpp>
#include <reprise/rewrite/names.hpp>

namespace reprise::reporting {

class RecomputationDotWriter {
 public:
  RecomputationDotWriter(std::ostream& out, const StepGraph& graph,
                         std::span<const NodeId> schedule, const Recomputation& recomputation)
      : out_(out),
        graph_(graph),
        schedule_(schedule),
        r_(recomputation),
        clones_(clone_numbers(graph, schedule)) {}

  void write() {
    out_ << "digraph " << dot_quoted(name_of(graph_.value(r_.value)) + " again")
         << " {\n  rankdir=LR;\n"
         << "  node [shape=box, fillcolor=white, fontname=\"sans-serif\", fontsize=10];\n"
         << "  edge [fontname=\"sans-serif\", fontsize=8];\n";
    for (const InstanceSource& s : r_.sources) write_source(s);
    for (std::uint32_t o : r_.occurrences) write_run(o, "rounded,filled,dashed");
    for (const InstanceRead& read : r_.reads) write_read(read);
    for (std::uint32_t o : r_.uses) write_use(o);
    out_ << "}\n";
  }

 private:
  static std::string id_of(const InstanceSource& s) {
    return "v" + std::to_string(s.value.index) +
           (s.made_by == no_index ? "" : "_" + std::to_string(s.made_by));
  }

  void write_source(const InstanceSource& s) {
    out_ << "  " << id_of(s) << " [label=" << dot_quoted(label_of(graph_, s))
         << ", shape=ellipse, style=filled, fillcolor=\"" << color_of(graph_.value(s.value).role)
         << "55\"];\n";
  }

  void write_run(std::uint32_t o, std::string_view style) {
    const Node& n = graph_.node(schedule_[o]);
    out_ << "  s" << o << " [label="
         << dot_quoted(name_of(n, clones_[o]) + "\nstep " + std::to_string(o) + ", " +
                       format_time(n.time))
         << ", style=\"" << style << "\"];\n";
  }

  void write_read(const InstanceRead& read) {
    const bool inside =
        read.made_by != no_index &&
        std::binary_search(r_.occurrences.begin(), r_.occurrences.end(), read.made_by);
    write_edge(inside ? "s" + std::to_string(read.made_by) : id_of({read.value, read.made_by}),
               read.read_by, read.value);
  }

  void write_use(std::uint32_t o) {
    if (o < schedule_.size()) write_run(o, "rounded,filled");
    else out_ << "  s" << o << " [label=\"handed over\", shape=ellipse, peripheries=2];\n";
    write_edge("s" + std::to_string(r_.occurrences.back()), o, r_.value);
  }

  void write_edge(const std::string& from, std::uint32_t to, ValueId v) {
    out_ << "  " << from << " -> s" << to << " [label=" << dot_quoted(name_of(graph_.value(v)))
         << ", color=\"" << color_of(graph_.value(v).role) << "\"];\n";
  }

  std::ostream& out_;
  const StepGraph& graph_;
  std::span<const NodeId> schedule_;
  const Recomputation& r_;
  std::vector<std::uint32_t> clones_;
};

/// Throws Errc::io if the stream fails.
inline void write_dot(std::ostream& out, const StepGraph& graph, std::span<const NodeId> schedule,
                      const Recomputation& recomputation) {
  RecomputationDotWriter{out, graph, schedule, recomputation}.write();
  if (!out.flush())
    throw Error(Errc::io, "the picture could not be written: the stream has failed");
}

}  // namespace reprise::reporting

namespace reprise {
using reporting::write_dot;
}  // namespace reprise
