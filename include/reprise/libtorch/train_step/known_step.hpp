#pragma once
// What a TrainStep knows of one signature (shapes, modes, …), and what becomes of a plan for it: a
// program with its addresses.
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
  /// what the budget was in bytes when this step last ran; 0 where that is not known yet
  Bytes budget{};
  std::optional<Bytes> floor{};  ///< of the graph; none where its workspaces have changed since
  /// what ops have taken outside of the arena because they asked for other blocks than planned
  Bytes missed{};
  /// the model's memory that the capture holds for; empty where it holds for any
  std::string storages{};
  std::string refusal{};                 ///< why it is not run from its graph
  int failures = 0;                      ///< guards that failed one after the other
  std::int64_t calls = 0;                ///< of this signature
  std::int64_t captured_at = 0;          ///< which of them was captured
  std::int64_t last_equal = 0;           ///< the last one that was seen to be the captured step
  std::int64_t verifiable = 0;           ///< calls that could have been replayed
  double packing = 1;                    ///< how much larger the arena was than the plan's peak
  bool told_of_fallback = false;         ///< that no plan fits
  std::vector<Microseconds> measured{};  ///< by node, of a replay; empty where none is due
};

/// A program that is ready to run, with the plan that it was made of.
struct ReadyProgram {
  Plan plan{};
  std::unique_ptr<LibTorchProgram> program{};
  std::unique_ptr<ArenaLayout> layout{};  ///< none where the program runs without an arena
  Bytes missed{};                         ///< KnownStep::missed
  int replays = 0;
  bool from_file = false;  ///< the plan was given, and is not to be improved

  /// As a share of the step's time: what fresh pages cost eager.
  static constexpr double worth_of_arena = 0.1;
  /// Microseconds: 1.2 a page of 4 KiB, as in eager's steps.
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
  /// Recomputation, and page faults.
  [[nodiscard]] double extra_time(const StepGraph& graph) const {
    const double own = simulate(graph, own_order(graph)).time.count;
    if (own <= 0) return 0;
    return simulate(graph, plan.schedule).time.count / own - 1 +
           (layout ? faulting_share() : worth_of_arena);
  }
  /// What it costs to touch pages again that were given back, as a share of the step's time.
  [[nodiscard]] double faulting_share() const {
    if (!layout || plan.baseline_time.count <= 0) return 0;
    return static_cast<double>(layout->given_back.count) * fault_per_byte /
           plan.baseline_time.count;
  }
  /// With the graph's times of now.
  void reprice(const StepGraph& graph) {
    plan.time = simulate(graph, plan.schedule).time;
    plan.baseline_time = simulate(graph, own_order(graph)).time;
  }
};

using KnownSteps = Replanner<KnownStep, ReadyProgram>;

}  // namespace reprise::training
