#pragma once
// KnownStep is what a TrainStep knows about one signature (shapes, modes, …). ReadyProgram is a
// plan for it: a program with its addresses.
//
//   Replanner<KnownStep, ReadyProgram> steps{rules, hooks};
//   auto& known = steps.find_or_add([&](auto& key) { return key.signature == "x [8, 3]"; }, …);
//   known.key.captured                  the step as it was captured
//   known.made->program, ->layout       what replays run

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <reprise/base/units.hpp>
#include <reprise/graph/simulate.hpp>
#include <reprise/libtorch/record/allocation_trace.hpp>
#include <reprise/libtorch/record/capture.hpp>
#include <reprise/libtorch/replay/arena_layout.hpp>
#include <reprise/libtorch/replay/program.hpp>
#include <reprise/plan/planner.hpp>
#include <reprise/plan/replanner.hpp>

namespace reprise::training {

struct KnownStep {
  std::string signature{};
  std::shared_ptr<CapturedStep> captured{};
  AllocationTrace trace{};
  /// the budget in bytes when this step last ran; 0 if it is not known yet
  Bytes budget{};
  std::optional<Bytes> floor{};  ///< of the graph; empty if its workspaces have changed since
  /// bytes that ops allocated outside of the arena because they asked for other blocks than planned
  Bytes missed{};
  /// the model's storages for which the capture is valid; empty if it is valid for any
  std::string storages{};
  std::string refusal{};                 ///< why it is not replayed
  int failures = 0;                      ///< failed guards in a row
  std::int64_t calls = 0;                ///< with this signature
  std::int64_t captured_at = 0;          ///< the captured call
  std::int64_t last_equal = 0;           ///< the last call that was found equal to the capture
  std::int64_t verifiable = 0;           ///< calls that could have been replayed
  double packing = 1;                    ///< the arena's size divided by the plan's peak
  bool told_of_fallback = false;         ///< a notice has said that no plan fits
  std::vector<Microseconds> measured{};  ///< by node, of a replay; empty if none is due
};

/// A program that is ready to run, with its plan.
struct ReadyProgram {
  Plan plan{};
  std::unique_ptr<LibTorchProgram> program{};
  std::unique_ptr<ArenaLayout> layout{};  ///< null if the program runs without an arena
  Bytes missed{};                         ///< KnownStep::missed
  int replays = 0;
  bool from_file = false;  ///< the user gave the plan: it is not improved

  /// The cost of fresh pages in eager, as a share of the step's time.
  static constexpr double worth_of_arena = 0.1;
  /// Microseconds per byte: 1.2 for a page of 4 KiB, as in eager's steps.
  static constexpr double fault_per_byte = 1.2 / 4096;

  [[nodiscard]] bool arena_fits(Bytes headroom) const {
    return !layout || layout->reserved() + missed <= headroom;
  }
  [[nodiscard]] bool fits(Bytes headroom) const {
    return program->peak_above_base() <= headroom && arena_fits(headroom);
  }
  [[nodiscard]] std::size_t recomputed() const {
    return plan.schedule.size() - program->step().graph().node_count();
  }
  /// Recomputation and page faults, as a share of the step's time.
  [[nodiscard]] double extra_time(const StepGraph& graph) const {
    const double own = simulate(graph, own_order(graph)).time.count;
    if (own <= 0) return 0;
    return simulate(graph, plan.schedule).time.count / own - 1 +
           (layout ? faulting_share() : worth_of_arena);
  }
  /// The cost of touching released pages again, as a share of the step's time.
  [[nodiscard]] double faulting_share() const {
    if (!layout || plan.baseline_time.count <= 0) return 0;
    return static_cast<double>(layout->given_back.count) * fault_per_byte /
           plan.baseline_time.count;
  }
  /// Computes the plan's times anew from the graph's present times.
  void reprice(const StepGraph& graph) {
    plan.time = simulate(graph, plan.schedule).time;
    plan.baseline_time = simulate(graph, own_order(graph)).time;
  }
};

using KnownSteps = Replanner<KnownStep, ReadyProgram>;

}  // namespace reprise::training
