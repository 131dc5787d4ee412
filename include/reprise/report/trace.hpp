#pragma once
// A step as a trace for ui.perfetto.dev or chrome://tracing: nodes as slices one after another,
// live bytes as counters.
//
// ```cpp
// std::ofstream trace{"step.trace.json"};
// write_trace(trace, graph);                  // the graph's own order
// write_trace(trace, graph, plan.schedule);   // a plan: with the category "recompute"
// ```
//
//   {"name":"relu","cat":"forward","ph":"X","ts":120.5,"dur":10,"pid":1,"tid":1,"args":{"id":1,"op":"aten::relu_","live_bytes":12352,…}}
//   {"name":"live bytes","ph":"C","ts":120.5,"pid":1,"args":{"bytes":12352}}
//   {"name":"live bytes by role","ph":"C","ts":120.5,"pid":1,"args":{"activation":8192,"buffer":64,"input":4096}}
//
// Times are the nodes' times laid end to end, bytes are the simulator's: a picture of the schedule,
// not a log of one run. The format is Chrome's JSON trace event format; times are in microseconds,
// on a grid of 1/8: exact in binary and in whole nanoseconds, so that no reader's rounding makes
// neighbours overlap (Perfetto drops what does). `time_us` is the node's own.

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <reprise/base/error.hpp>
#include <reprise/graph/json_text.hpp>
#include <reprise/graph/schedule.hpp>
#include <reprise/graph/simulate.hpp>
#include <reprise/graph/step_graph.hpp>

namespace reprise {

/// Collects the events of a trace as JSON text.
class TraceEvents {
 public:
  /// Opens an event; `key` and `text` add to it, `end` closes it.
  TraceEvents& begin(std::string_view name, std::string_view kind) {
    text_ += text_.empty() ? "{\"name\":" : ",\n{\"name\":";
    string_value(name);
    return text("ph", kind);
  }
  TraceEvents& text(std::string_view key, std::string_view value) {
    member(key);
    string_value(value);
    return *this;
  }
  TraceEvents& number(std::string_view key, auto value) {
    member(key);
    append_json_number(text_, value);
    return *this;
  }
  TraceEvents& begin_args() {
    member("args");
    text_ += '{';
    return *this;
  }
  TraceEvents& end_args() {
    text_ += '}';
    return *this;
  }
  void end() { text_ += '}'; }
  [[nodiscard]] const std::string& json() const { return text_; }

 private:
  void member(std::string_view key) {
    if (text_.back() != '{') text_ += ',';
    append_json_string(text_, key);
    text_ += ':';
  }
  void string_value(std::string_view value) {
    append_json_string(text_, is_utf8(value) ? std::string(value) : printable(value, value.size()));
  }

  std::string text_;
};

/// Throws Errc::bad_schedule where the schedule cannot be run, Errc::io where the stream fails.
inline void write_trace(std::ostream& out, const StepGraph& graph,
                        std::span<const NodeId> schedule) {
  constexpr std::int64_t process = 1, thread = 1;
  const Simulation run = simulate(graph, schedule);
  if (!run.valid) throw Error(Errc::bad_schedule, run.violation->message);
  const std::vector<std::array<Bytes, role_count>> by_role = bytes_by_role(graph, schedule);
  std::array<bool, role_count> used{};
  for (const auto& bytes : by_role)
    for (std::size_t r = 0; r < role_count; ++r) used[r] = used[r] || bytes[r] > Bytes{0};

  TraceEvents events;
  events.begin("process_name", "M")
      .number("pid", process)
      .begin_args()
      .text("name", graph.name().empty() ? "step" : graph.name())
      .end_args()
      .end();
  events.begin("thread_name", "M")
      .number("pid", process)
      .number("tid", thread)
      .begin_args()
      .text("name", "nodes")
      .end_args()
      .end();
  const auto count = [&](double at, Bytes bytes) {
    events.begin("live bytes", "C")
        .number("ts", at)
        .number("pid", process)
        .begin_args()
        .number("bytes", bytes.count)
        .end_args()
        .end();
  };
  std::vector<bool> seen(graph.node_count(), false);
  double at = 0;  // on the grid
  ExactSum end;   // not on the grid
  const auto on_grid = [](double us) { return std::round(us * 8) / 8; };
  for (std::size_t i = 0; i < schedule.size(); ++i) {
    const Node& n = graph.node(schedule[i]);
    end.add(n.time.count);
    const double next = on_grid(end.value());
    const bool again = seen[schedule[i].index];
    seen[schedule[i].index] = true;
    events.begin(n.name.empty() ? "node " + std::to_string(n.id) : n.name, "X")
        .text("cat", again ? "recompute" : to_string(n.phase));
    events.number("ts", at)
        .number("dur", next - at)
        .number("pid", process)
        .number("tid", thread)
        .begin_args()
        .number("id", n.id);
    events.text("op", n.op)
        .text("phase", to_string(n.phase))
        .number("live_bytes", run.live_during[i].count)
        .number("workspace_bytes", n.workspace.count)
        .number("time_us", n.time.count);
    events.end_args().end();
    count(at, run.live_during[i]);
    events.begin("live bytes by role", "C").number("ts", at).number("pid", process).begin_args();
    for (std::size_t r = 0; r < role_count; ++r)
      if (used[r]) events.number(to_string(static_cast<Role>(r)), by_role[i][r].count);
    events.end_args().end();
    at = next;
  }
  if (!schedule.empty()) count(at, run.live_after.back());
  if (!(out << "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n"
            << events.json() << "\n]}\n"
            << std::flush))
    throw Error(Errc::io, "the trace could not be written: the stream has failed");
}

inline void write_trace(std::ostream& out, const StepGraph& graph) {
  write_trace(out, graph, own_order(graph));
}

}  // namespace reprise
