#pragma once
// write_trace() writes a step as a trace for ui.perfetto.dev or chrome://tracing: nodes as
// consecutive slices, live bytes as counters.
//
// ```cpp
// std::ofstream trace{"step.trace.json"};
// write_trace(trace, graph);                  // the graph's own order
// write_trace(trace, graph, plan.schedule);   // a plan: with the category "recompute"
// ```
//
//   {"name":"relu","ph":"X","pid":1,"tid":1,"cat":"forward","ts":120.5,"dur":10.0,"args":{"id":1,"op":"aten::relu_","live_bytes":12352,…}}
//   {"name":"live bytes","ph":"C","pid":1,"tid":1,"ts":120.5,"args":{"bytes":12352}}
//   {"name":"live bytes by role","ph":"C","pid":1,"tid":1,"ts":120.5,"args":{"buffer":64,"input":4096,"activation":8192}}
//
// Times are the nodes' times one after the other, bytes are the simulator's: a picture of the
// schedule, not a log of one run. The format is Chrome's JSON trace event format. Times are in
// microseconds on a grid of 1/8, which is exact in binary and in nanoseconds. No reader's rounding
// then makes neighbours overlap (Perfetto drops overlapping slices). `time_us` is the node's own
// time.

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <reprise/base/error.hpp>
#include <reprise/base/utf8.hpp>
#include <reprise/graph/schedule.hpp>
#include <reprise/graph/simulate.hpp>
#include <reprise/graph/step_graph.hpp>

namespace reprise::reporting {

/// The events of a trace, in order, as nlohmann_json writes them.
class TraceEvents {
 public:
  using Json = nlohmann::ordered_json;

  /// A name for the process or its thread.
  void name(std::string_view what, std::string_view name) {
    add(what, "M", {{"args", {{"name", as_utf8(name)}}}});
  }
  void slice(std::string_view name, const Json& rest) { add(name, "X", rest); }
  void counter(std::string_view name, double at, const Json& numbers) {
    add(name, "C", {{"ts", at}, {"args", numbers}});
  }
  [[nodiscard]] const std::string& json() const { return text_; }

 private:
  void add(std::string_view name, std::string_view kind, const Json& rest) {
    Json event = {{"name", as_utf8(name)}, {"ph", kind}, {"pid", 1}, {"tid", 1}};
    event.update(rest);
    (text_ += text_.empty() ? "" : ",\n") += event.dump();
  }

  std::string text_;
};

/// Throws Errc::bad_schedule if the schedule cannot be run, Errc::io if the stream fails.
inline void write_trace(std::ostream& out, const StepGraph& graph,
                        std::span<const NodeId> schedule) {
  const Simulation run = simulate(graph, schedule);
  if (!run.valid) throw Error(Errc::bad_schedule, run.violation->message);
  const std::vector<std::array<Bytes, role_count>> by_role = bytes_by_role(graph, schedule);
  std::array<bool, role_count> used{};
  for (const auto& bytes : by_role)
    for (std::size_t r = 0; r < role_count; ++r) used[r] = used[r] || bytes[r] > Bytes{0};

  TraceEvents events;
  events.name("process_name", graph.name().empty() ? "step" : graph.name());
  events.name("thread_name", "nodes");
  std::vector<char> seen(graph.node_count(), 0);
  double at = 0;  // on the grid
  ExactSum end;   // not on the grid
  const auto on_grid = [](double us) { return std::round(us * 8) / 8; };
  for (std::size_t i = 0; i < schedule.size(); ++i) {
    const Node& n = graph.node(schedule[i]);
    end.add(n.time.count);
    const double next = on_grid(end.value());
    const bool again = std::exchange(seen[schedule[i].index], 1) != 0;
    events.slice(n.name.empty() ? "node " + std::to_string(n.id) : n.name,
                 {{"cat", again ? "recompute" : to_string(n.phase)},
                  {"ts", at},
                  {"dur", next - at},
                  {"args",
                   {{"id", n.id},
                    {"op", as_utf8(n.op)},
                    {"phase", to_string(n.phase)},
                    {"live_bytes", run.live_during[i].count},
                    {"workspace_bytes", n.workspace.count},
                    {"time_us", n.time.count}}}});
    events.counter("live bytes", at, {{"bytes", run.live_during[i].count}});
    TraceEvents::Json shares = TraceEvents::Json::object();
    for (std::size_t r = 0; r < role_count; ++r)
      if (used[r]) shares[std::string(to_string(static_cast<Role>(r)))] = by_role[i][r].count;
    events.counter("live bytes by role", at, shares);
    at = next;
  }
  if (!schedule.empty()) events.counter("live bytes", at, {{"bytes", run.live_after.back().count}});
  if (!(out << "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n"
            << events.json() << "\n]}\n"
            << std::flush))
    throw Error(Errc::io, "the trace could not be written: the stream has failed");
}

inline void write_trace(std::ostream& out, const StepGraph& graph) {
  write_trace(out, graph, own_order(graph));
}

}  // namespace reprise::reporting

namespace reprise {
using reporting::write_trace;
}  // namespace reprise
