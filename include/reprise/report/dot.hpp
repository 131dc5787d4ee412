#pragma once
// write_dot() draws a step for Graphviz: nodes as boxes in one cluster per phase, edges in the
// colour of the flowing value's role.
//
// ```cpp
// write_dot(std::cout, graph);                    // dot -Tsvg step.dot > step.svg
// // at most two edges away from one node
// write_dot(std::cout, graph, {.around = NodeId{12}, .radius = 2});
// ```
//
//   subgraph cluster_forward {
//     n1 [label="relu\naten::relu_\n10.0 us"];
//   }
//   n0 -> n1 [label="h 8.00 KiB", color="#f28e2b"];         through h, an activation
//
// Values from before the step are ellipses, and outputs of the step end in a double ellipse. Order
// edges are dashed, updates dotted. Any name gives valid DOT.

#include <algorithm>
#include <cstddef>
#include <limits>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include <boost/graph/named_function_params.hpp>
#include <boost/graph/neighbor_bfs.hpp>
#include <boost/property_map/property_map.hpp>

#include <range/v3/range/access.hpp>
#include <range/v3/range/primitives.hpp>
#include <range/v3/view/filter.hpp>

#include <reprise/base/error.hpp>
#include <reprise/base/units.hpp>
#include <reprise/base/utf8.hpp>
#include <reprise/graph/adapter.hpp>
#include <reprise/graph/step_graph.hpp>
#include <reprise/report/palette.hpp>

namespace reprise::reporting {

struct DotOptions {
  NodeId around{};         ///< draw this node and the nodes near it; none: draw everything
  std::size_t radius = 2;  ///< largest distance of a near node in edges, in either direction
  bool order_edges = true;
  /// parameters, inputs and other values from before the step, and outputs of the step
  bool outside_values = true;
};

/// Text as a quoted DOT string. Control characters and bytes that are not UTF-8 become '?'; "\n"
/// stays a line break.
[[nodiscard]] inline std::string dot_quoted(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    const char c = text.front();
    if (c == '\n') out += "\\n";
    else if (c == '"' || c == '\\') (out += '\\') += c;
    else if (c == '&') out += "&amp;";  // otherwise Graphviz would read an entity
    else if (length == 0 || static_cast<unsigned char>(c) < 0x20 || c == 0x7F) out += '?';
    else out += text.substr(0, length);
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return out += '"';
}

/// Computes the distance of the nodes from the first node, in edges: a visitor of Boost.Graph's
/// search in both directions.
struct DistanceVisitor : boost::neighbor_bfs_visitor<> {
  std::vector<std::size_t>* away = nullptr;  // by node

  void tree_out_edge(EdgeId e, const GraphAdapter<StepGraph>& g) {
    (*away)[target(e, g).index] = (*away)[source(e, g).index] + 1;
  }
  void tree_in_edge(EdgeId e, const GraphAdapter<StepGraph>& g) {
    (*away)[source(e, g).index] = (*away)[target(e, g).index] + 1;
  }
};

/// By node: whether it is at most `radius` edges away from one node, in either direction.
[[nodiscard]] inline std::vector<bool> nodes_near(const GraphAdapter<StepGraph>& adapter,
                                                  NodeId around, std::size_t radius) {
  constexpr std::size_t not_found = std::numeric_limits<std::size_t>::max();
  std::vector<std::size_t> away(num_vertices(adapter), not_found);
  std::vector<boost::default_color_type> colors(num_vertices(adapter));
  DistanceVisitor visitor;
  visitor.away = &away;
  away[around.index] = 0;
  boost::neighbor_breadth_first_search(
      adapter, around,
      boost::visitor(visitor).color_map(
          boost::make_iterator_property_map(colors.begin(), NodeIndexMap{})));
  std::vector<bool> near(away.size());
  for (std::size_t i = 0; i < away.size(); ++i) near[i] = away[i] <= radius && away[i] != not_found;
  return near;
}

class DotWriter {
 public:
  DotWriter(std::ostream& out, const StepGraph& graph, const DotOptions& options)
      : out_(out),
        graph_(graph),
        options_(options),
        adapter_(graph, options.order_edges ? Edges::data_and_order : Edges::data) {
    if (options.around.valid() && options.around.index >= graph.node_count())
      throw Error(Errc::bad_argument, "no such node to draw around");
    drawn_ = options.around.valid() ? nodes_near(adapter_, options.around, options.radius)
                                    : std::vector<bool>(graph.node_count(), true);
  }

  void write() {
    out_ << "digraph " << dot_quoted(graph_.name())
         << " {\n  fontname=\"sans-serif\"; fontsize=12;\n"
         << "  node [shape=box, style=\"rounded,filled\", fillcolor=white, "
            "fontname=\"sans-serif\", fontsize=10];\n"
         << "  edge [fontname=\"sans-serif\", fontsize=8];\n";
    write_cluster(Phase::forward, "#e8f1fb");
    write_cluster(Phase::backward, "#fdf0e3");
    write_cluster(Phase::optimizer, "#f1e8f4");
    write_edges();
    if (options_.outside_values) write_outside_values();
    out_ << "}\n";
  }

 private:
  [[nodiscard]] auto drawn_nodes() const {
    return graph_.node_ids() | ranges::views::filter([this](NodeId n) { return drawn_[n.index]; });
  }

  void write_cluster(Phase phase, std::string_view color) {
    auto inside = drawn_nodes() |
                  ranges::views::filter([&](NodeId n) { return graph_.node(n).phase == phase; });
    if (ranges::empty(inside)) return;
    out_ << "  subgraph cluster_" << to_string(phase) << " {\n    label=" << to_string(phase)
         << "; color=\"" << color << "\"; bgcolor=\"" << color << "\";\n";
    for (NodeId n : inside) write_node(n);
    out_ << "  }\n";
  }

  void write_node(NodeId id) {
    const Node& n = graph_.node(id);
    std::string label = n.name.empty() ? "node " + std::to_string(n.id) : n.name;
    if (!n.op.empty()) label += "\n" + n.op;
    label += "\n" + format_time(n.time);
    if (n.workspace != Bytes{0}) label += ", workspace " + format_bytes(n.workspace);
    out_ << "    n" << id.index << " [label=" << dot_quoted(label)
         << ", tooltip=" << dot_quoted("node " + std::to_string(n.id));
    if (!n.recomputable) out_ << ", penwidth=2";
    if (id == options_.around) out_ << ", color=\"#d62728\", penwidth=3";
    out_ << "];\n";
  }

  void write_edges() {
    for (auto [e, end] = edges(adapter_); e != end; ++e) {
      const Dependency& d = adapter_.dependency(*e);
      if (!drawn_[d.from.index] || !drawn_[d.to.index]) continue;
      out_ << "  n" << d.from.index << " -> n" << d.to.index;
      if (d.is_data()) write_value_attributes(d.value);
      else out_ << " [style=dashed, color=gray60, constraint=false];\n";
    }
  }

  void write_value_attributes(ValueId v) {
    out_ << " [label=" << dot_quoted(label_of(v)) << ", color=\"" << color_of(graph_.value(v).role)
         << "\"];\n";
  }

  void write_outside_values() {
    declared_.assign(graph_.value_count(), false);
    for (NodeId n : drawn_nodes()) {
      for (ValueId v : reads(graph_, n)) {
        if (producer(graph_, v).valid()) continue;
        declare(v, 'v');
        out_ << "  v" << v.index << " -> n" << n.index << " [color=\""
             << color_of(graph_.value(v).role) << "\"];\n";
      }
      // backwards, because edges against the order upset the ranks of clusters
      for (ValueId v : graph_.updates(n)) {
        declare(v, 'v');
        out_ << "  v" << v.index << " -> n" << n.index << " [dir=back, style=dotted, color=\""
             << color_of(graph_.value(v).role) << "\"];\n";
      }
    }
    declared_.assign(graph_.value_count(), false);
    for (ValueId v : graph_.outputs()) {
      const NodeId maker = graph_.value(v).producer;
      if (!maker.valid() || !drawn_[maker.index] || declared_[v.index]) continue;
      declare(v, 'o');
      out_ << "  n" << maker.index << " -> o" << v.index << " [color=\""
           << color_of(graph_.value(v).role) << "\"];\n";
    }
  }

  void declare(ValueId v, char prefix) {
    if (declared_[v.index]) return;
    declared_[v.index] = true;
    const Value& value = graph_.value(v);
    out_ << "  " << prefix << v.index << " [label=" << dot_quoted(label_of(v))
         << ", shape=ellipse, peripheries=" << (prefix == 'o' ? 2 : 1)
         << ", style=filled, fillcolor=\"" << color_of(value.role) << "55\", tooltip="
         << dot_quoted(std::string(to_string(value.role)) + ", value " + std::to_string(value.id))
         << "];\n";
  }

  // A view has the bytes of its target.
  [[nodiscard]] std::string label_of(ValueId v) const {
    const Value& value = graph_.value(v);
    const std::string name = value.name.empty() ? "value " + std::to_string(value.id) : value.name;
    return name + (value.owns()             ? " " + format_bytes(value.bytes)
                   : value.alias_of.valid() ? " (view)"
                                            : " (in place)");
  }

  std::ostream& out_;
  const StepGraph& graph_;
  DotOptions options_;
  GraphAdapter<StepGraph> adapter_;
  std::vector<bool> drawn_;     // by node
  std::vector<bool> declared_;  // by value
};

/// Throws Errc::bad_argument if `around` is no node, Errc::io if the stream fails.
inline void write_dot(std::ostream& out, const StepGraph& graph, const DotOptions& options = {}) {
  DotWriter{out, graph, options}.write();
  if (!out.flush())
    throw Error(Errc::io, "the picture could not be written: the stream has failed");
}

}  // namespace reprise::reporting

namespace reprise {
using reporting::DotOptions;
using reporting::write_dot;
}  // namespace reprise
